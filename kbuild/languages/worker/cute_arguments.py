"""The arguments of one compilation: fake tensors, numbers, the stream, and a function around it.

The author's function is called by a generated one, which has a plain parameter for each value that
a call hands over: tuples are put together in it, constants and what is None are written into it.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cutlass  # type: ignore[import-not-found]
from cuda.bindings.driver import CUstream  # type: ignore[import-not-found]
from cutlass import cute
from cutlass.cute import runtime  # type: ignore[import-not-found]

from kbuild.languages.worker.cute_functions import Function, annotated, is_constant, is_stream
from kbuild.languages.worker.protocol import RefusalError

_DTYPES = {
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "Float32",
    "float64": "Float64",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "bool": "Boolean",
    **{
        f"{word}{bits}": f"{word.capitalize()}{bits}"
        for word in ("int",)
        for bits in (8, 16, 32, 64)
    },
    **{f"uint{bits}": f"Uint{bits}" for bits in (8, 16, 32, 64)},
}
"""Torch's names of dtypes -> those of `cutlass`."""
_FLOATS = ("Float64", "Float32", "Float16", "BFloat16")
_FILE = "<kbuild>"
_LONG = 64
"""Bits of integers that are not the usual ones."""
_CONSTANT = re.compile(r"c\d+")


class Arguments:
    """What `cute.compile` is given."""

    def __init__(self, function: Function, request: Mapping[str, Any]) -> None:
        self._function, self._request = function, request
        self._arguments = {one["name"]: one for one in request["arguments"]}
        self._constants = {name: _value(v) for name, v in request["constants"].items()}
        self._sizes: dict[str, Any] = {}
        self.divisible: set[str] = set()
        """What is assumed to be divisible by 16."""
        self.ones: set[str] = set()
        """What is assumed to be 1, and is no argument."""

    def given(self, *, env_stream: bool) -> list[Any]:
        """The generated function with its arguments; the last is the stream.

        Args:
            env_stream: whether the object asks TVM-FFI for it; else the caller hands it over.
        """
        leaves = [self._leaf(leaf) for leaf in self._leaves()]
        stream = runtime.make_fake_stream(use_tvm_ffi_env_stream=env_stream)
        has_stream = any(is_stream(one) for one in self._function.parameters)
        return [self._entry(leaves), *leaves, *([stream] if has_stream else [])]

    def parameters(self) -> list[dict[str, str]]:
        """What a launcher hands over, in order."""
        return [_parameter(leaf) for leaf in self._leaves()]

    def _leaves(self) -> Iterator[Mapping[str, Any]]:
        for argument in self._arguments.values():
            items = argument["items"] if argument["kind"] == "tuple" else [argument]
            yield from (item for item in items if item["kind"] not in {"none", "one"})

    def _entry(self, leaves: Sequence[Any]) -> Any:
        """The function around the author's."""
        names = {leaf["name"]: _parameter_name(leaf["name"]) for leaf in self._leaves()}
        scope: dict[str, Any] = {"author": self._function.author(self._constants)}
        given = []
        for at, one in enumerate(self._function.parameters):
            if is_stream(one):
                text = "stream"
            elif is_constant(one):
                if one.name not in self._constants:
                    continue  # its default
                scope[f"c{at}"], text = self._constants[one.name], f"c{at}"
            else:
                text = self._written(self._arguments[one.name], names)
            given.append(f"{one.name}={text}")
        has_stream = any(is_stream(one) for one in self._function.parameters)
        head = ", ".join((*names.values(), *(["stream"] if has_stream else [])))
        text = f"def entry({head}):\n    author({', '.join(given)})\n"
        linecache.cache[_FILE] = (len(text), None, text.splitlines(keepends=True), _FILE)
        exec(compile(text, _FILE, "exec"), scope)  # noqa: S102 - kbuild's own text
        scope["entry"].__annotations__ = {
            **{name: _annotation(leaf) for name, leaf in zip(names.values(), leaves, strict=True)},
            **({"stream": CUstream} if has_stream else {}),
        }
        return cute.jit(preprocess=False)(scope["entry"])

    def _written(self, argument: Mapping[str, Any], names: Mapping[str, str]) -> str:
        """An argument as the generated function hands it on."""
        if argument["kind"] == "tuple":
            items = (self._written(item, names) for item in argument["items"])
            return f"({', '.join(items)},)"
        if argument["kind"] == "one":
            self.ones.add(argument["name"])
            return "1"
        return "None" if argument["kind"] == "none" else names[argument["name"]]

    def _leaf(self, leaf: Mapping[str, Any]) -> Any:
        """A value of the type that it is compiled for."""
        kind = leaf["kind"]
        if kind in {"tensor", "flat"}:
            return self._tensor(leaf)
        if kind == "int":
            return cutlass.Int64(1) if leaf["bits"] == _LONG else cutlass.Int32(1)
        if kind == "bool":
            return cutlass.Boolean(True)
        return self._float(leaf["name"])(1.0)

    def _float(self, name: str) -> Any:
        """As the author's annotation says; 32 bits when it says nothing."""
        owner = name.partition(".")[0]
        one = next(one for one in self._function.parameters if one.name == owner)
        word = next((word for word in _FLOATS if annotated(one, word)), "Float32")
        return getattr(cutlass, word)

    def _tensor(self, leaf: Mapping[str, Any]) -> Any:
        dtype = _dtype(leaf["dtype"])
        name, align = leaf["name"], leaf["align"] or max(1, dtype.width // 8)
        if leaf["align"]:
            self.divisible.add(name)
        shape = tuple(
            self._dim(size, f"{name}.shape.{at}") for at, size in enumerate(leaf["shape"])
        )
        if leaf["strides"] is None:
            order = tuple(reversed(range(len(shape))))
            return runtime.make_fake_compact_tensor(
                dtype, shape, stride_order=order, assumed_align=align
            )
        strides = tuple(
            self._stride(one, f"{name}.stride.{at}") for at, one in enumerate(leaf["strides"])
        )
        return runtime.make_fake_tensor(dtype, shape, strides, assumed_align=align)

    def _dim(self, size: Any, part: str) -> Any:
        if isinstance(size, int):
            return size
        if "one" in size:
            self.ones.add(size["one"])
            return 1
        name = size.get("size", part)
        if size["divisor"] > 1:
            self.divisible.add(name if name.isidentifier() else part)
        if name not in self._sizes:
            make = cute.sym_int64 if size["bits"] == _LONG else cute.sym_int32
            self._sizes[name] = make(divisibility=size["divisor"])
        return self._sizes[name]

    def _stride(self, stride: Any, part: str) -> Any:
        if isinstance(stride, int):
            return stride
        if "one" in stride:
            self.ones.add(stride["one"])
            return 1
        if stride["divisor"] > 1:
            self.divisible.add(part)
        return cute.sym_int64(divisibility=stride["divisor"])


def _parameter_name(name: str) -> str:
    """`shape_0` for `shape.0`; never the name of something else in the generated function."""
    plain = name.replace(".", "_")
    return f"{plain}_" if plain in {"author", "stream"} or _CONSTANT.fullmatch(plain) else plain


def _annotation(value: Any) -> Any:
    numeric = isinstance(value, cutlass.Numeric)
    return type(value) if numeric else cute.Tensor


def _parameter(leaf: Mapping[str, Any]) -> dict[str, str]:
    kind, name = leaf["kind"], leaf["name"]
    if kind in {"tensor", "flat"}:
        return {"kind": kind, "type": f"*{_short(leaf['dtype'])}", "name": name}
    if kind == "int":
        return {"kind": "int", "type": f"i{leaf['bits']}", "name": name}
    if kind == "bool":
        return {"kind": "int", "type": "u1", "name": name}
    return {"kind": "float", "type": "fp64", "name": name}


def _short(dtype: str) -> str:
    """`fp16`, `i32`: how images name types."""
    special = {"bfloat16": "bf16", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}
    if dtype in special:
        return special[dtype]
    return dtype.replace("float", "fp").replace("uint", "u").replace("int", "i")


def _dtype(name: str) -> Any:
    found = getattr(cutlass, _DTYPES[name], None)
    if found is None:
        raise RefusalError(f"this release of CuTe DSL has no {name}")
    return found


def _value(value: Any) -> Any:
    """A constant as a CuTe function takes it."""
    if isinstance(value, list):
        return tuple(map(_value, value))
    return _dtype(value["dtype"]) if isinstance(value, dict) else value
