"""The arguments of `cute.compile`, and changes of the host code that it returns.

`cute.compile` gets a generated entry function, which calls the author's, and fake arguments.
"""

from __future__ import annotations

import inspect
import json
import linecache
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any

import cutlass  # type: ignore[import-not-found]
from cuda.bindings.driver import CUstream
from cutlass import cute
from cutlass._mlir import ir  # type: ignore[import-not-found]
from cutlass.cute import runtime  # type: ignore[import-not-found]

from kbuild.dsl.worker.object_compiler import image_type
from kbuild.dsl.worker.protocol import RefusalError

_STREAM = "CUstream"
_CONSTANT = "Constexpr"
_CALL = "__call__"
_SELF = "self"
"""Prefix for a constructor's parameter whose name the call's parameters have too."""


class CuteFunction:
    """A function that launches kernels, or a class whose objects are callable."""

    def __init__(self, name: str, jit: Any, owner: type | None = None) -> None:
        """Read the signatures of a function with `@cute.jit`, and of its class."""
        self.name, self.jit, self._owner = name, jit, owner
        self.parameters = _named(name, jit)[owner is not None :]
        taken = {parameter.name for parameter in self.parameters}
        constructor_parameters = _named(name, owner.__init__)[1:] if _has_constructor(owner) else []  # type: ignore[misc]
        self.made_with = {
            f"{_SELF}.{parameter.name}" if parameter.name in taken else parameter.name: parameter
            for parameter in constructor_parameters
        }
        """Parameters of the class's constructor, by their names in `build.toml`."""

    def author(self, constants: Mapping[str, Any]) -> Any:
        """Return the callable: the function, or the method of an object built from constants."""
        if self._owner is None:
            return self.jit
        names = {p.name: name for name, p in self.made_with.items() if name in constants}
        owner = self._owner(**{parameter: constants[name] for parameter, name in names.items()})
        return getattr(owner, self.jit.__name__)

    def describe(self) -> dict[str, Any]:
        """JSON object of the function, without its stream."""
        own = [(p.name, is_constant(p), p) for p in self.parameters if not is_stream(p)]
        own += [(name, True, parameter) for name, parameter in self.made_with.items()]
        parameters = [
            {"name": name, "constant": constant, "default": p.default is not p.empty}
            for name, constant, p in own
        ]
        return {"name": self.name, "parameters": parameters}


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, CuteFunction]:
    """The functions of a module by name."""
    functions_by_name: dict[str, CuteFunction] = {}
    for name, value in vars(module).items():
        is_class = issubclass(type(value), type)
        jit = getattr_static(value, _CALL, None) if is_class else value
        if _is_jit(jit) and owns(value.__module__):
            functions_by_name[name] = CuteFunction(name, jit, value if is_class else None)
    return functions_by_name


def is_constant(parameter: inspect.Parameter) -> bool:
    """True for an annotation with `cutlass.Constexpr`."""
    return _CONSTANT in _annotation(parameter)


def is_stream(parameter: inspect.Parameter) -> bool:
    """True for the stream: annotated as one, or named so without an annotation."""
    annotation = _annotation(parameter)
    return _STREAM in annotation or (parameter.name == "stream" and not annotation)


def _named(name: str, function: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RefusalError(f"`{name}` takes `*{parameter.name}`; an op's arguments have names")
    return parameters


def _has_constructor(owner: type | None) -> bool:
    # `object.__init__`, which a class without a constructor has, is no function of Python's.
    return owner is not None and inspect.isfunction(owner.__init__)  # type: ignore[misc]


def _is_jit(value: Any) -> bool:
    """True for a decorated function; looks only at functions, since objects may answer anything."""
    known = vars(value) if type(value) is FunctionType else {}
    # Releases before 4.8 do not say which of the two decorators it was.
    executor = known.get("_dsl_object", known.get("_dsl_cls"))
    kind = known.get("_decorator_kind") or (executor is not None and "jit")
    return known.get("__wrapped__") is not None and kind == "jit"


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else f"{annotation!r}"


_DTYPES = {
    "bfloat16": "BFloat16",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "bool": "Boolean",
}
"""Torch's names of dtypes -> names in `cutlass`, unless these are the same capitalised."""
_FLOATS = ("Float64", "Float32", "Float16", "BFloat16")
_FILE = "<kbuild>"
_LONG = 64
"""Bits of long integers; others have 32."""
_GENERATED_CONSTANT = re.compile(r"c\d+")


class CuteArguments:
    """The arguments of `cute.compile`."""

    def __init__(self, function: CuteFunction, request: Mapping[str, Any]) -> None:
        self._function, self._request = function, request
        self._arguments = {argument["name"]: argument for argument in request["arguments"]}
        self._constants = {name: _value(v) for name, v in request["constants"].items()}
        self._sizes: dict[str, Any] = {}
        self.divisible: set[str] = set()
        """Names that are assumed to be divisible by 16."""
        self.ones: set[str] = set()
        """Names that are assumed to be 1 and are not passed."""

    def given(self, *, env_stream: bool) -> list[Any]:
        """Return the generated function and its arguments; the last one is the stream.

        With `env_stream`, the object gets the stream from TVM-FFI; otherwise the caller passes it.
        """
        leaves = [self._leaf(leaf) for leaf in self._leaves()]
        stream = runtime.make_fake_stream(use_tvm_ffi_env_stream=env_stream)
        has_stream = any(is_stream(parameter) for parameter in self._function.parameters)
        return [self._entry(leaves), *leaves, *([stream] if has_stream else [])]

    def parameters(self) -> list[dict[str, str]]:
        """The arguments that a launcher passes, in order."""
        return [_parameter(leaf) for leaf in self._leaves()]

    def _leaves(self) -> Iterator[Mapping[str, Any]]:
        for argument in self._arguments.values():
            items = argument["items"] if argument["kind"] == "tuple" else [argument]
            yield from (item for item in items if item["kind"] not in {"none", "one"})

    def _entry(self, leaves: Sequence[Any]) -> Any:
        """Generate the function that calls the author's."""
        names = {leaf["name"]: _parameter_name(leaf["name"]) for leaf in self._leaves()}
        scope: dict[str, Any] = {"author": self._function.author(self._constants)}
        arguments = []
        for at, parameter in enumerate(self._function.parameters):
            if is_stream(parameter):
                text = "stream"
            elif is_constant(parameter):
                if parameter.name not in self._constants:
                    continue  # its default
                scope[f"c{at}"], text = self._constants[parameter.name], f"c{at}"
            else:
                text = self._written(self._arguments[parameter.name], names)
            arguments.append(f"{parameter.name}={text}")
        has_stream = any(is_stream(parameter) for parameter in self._function.parameters)
        head = ", ".join((*names.values(), *(["stream"] if has_stream else [])))
        text = f"def entry({head}):\n    author({', '.join(arguments)})\n"
        linecache.cache[_FILE] = (len(text), None, text.splitlines(keepends=True), _FILE)
        exec(compile(text, _FILE, "exec"), scope)  # noqa: S102 - kbuild's own text
        types = (
            type(leaf) if isinstance(leaf, cutlass.Numeric) else cute.Tensor for leaf in leaves
        )
        annotations = dict(zip(names.values(), types, strict=True))
        scope["entry"].__annotations__ = annotations | ({"stream": CUstream} if has_stream else {})
        return cute.jit(preprocess=False)(scope["entry"])

    def _written(self, argument: Mapping[str, Any], names: Mapping[str, str]) -> str:
        """Source of an argument in the generated function's call."""
        if argument["kind"] == "tuple":
            items = (self._written(item, names) for item in argument["items"])
            return f"({', '.join(items)},)"
        if argument["kind"] == "one":
            self.ones.add(argument["name"])
            return "1"
        return "None" if argument["kind"] == "none" else names[argument["name"]]

    def _leaf(self, leaf: Mapping[str, Any]) -> Any:
        """A fake value of the type that the kernel is compiled for."""
        kind = leaf["kind"]
        if kind in {"tensor", "flat"}:
            return self._tensor(leaf)
        if kind == "int":
            return cutlass.Int64(1) if leaf["bits"] == _LONG else cutlass.Int32(1)
        if kind == "bool":
            return cutlass.Boolean(True)
        return self._float(leaf["name"])(1.0)

    def _float(self, name: str) -> Any:
        """Float type of the author's annotation; 32 bits without one."""
        owner = name.partition(".")[0]
        parameter = next(p for p in self._function.parameters if p.name == owner)
        annotation = _annotation(parameter)
        word = next((word for word in _FLOATS if word in annotation), "Float32")
        if word not in annotation and re.search(r"\bU?Int\d+\b", annotation):
            raise RefusalError(
                f"`{name}` of `{self._function.name}` is a {annotation}, which would drop the "
                "fraction of a float",
                hint="declare a float in the kernel, or an `int` in the schema",
            )
        return getattr(cutlass, word)

    def _tensor(self, leaf: Mapping[str, Any]) -> Any:
        dtype = _dtype(leaf["dtype"])
        name, align = leaf["name"], leaf["align"] or max(1, dtype.width // 8)
        if leaf["align"]:
            self.divisible.add(name)
        sizes = enumerate(leaf["shape"])
        shape = tuple(self._dim(size, f"{name}.shape.{at}") for at, size in sizes)
        if leaf["strides"] is None:
            keys = {"stride_order": tuple(reversed(range(len(shape)))), "assumed_align": align}
            return runtime.make_fake_compact_tensor(dtype, shape, **keys)
        numbers = enumerate(leaf["strides"])
        strides = tuple(self._stride(stride, f"{name}.stride.{at}") for at, stride in numbers)
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
    """`shape_0` for `shape.0`; never a name that the generated function uses otherwise."""
    plain = name.replace(".", "_")
    is_taken = plain in {"author", "stream"} or _GENERATED_CONSTANT.fullmatch(plain)
    return f"{plain}_" if is_taken else plain


def _parameter(leaf: Mapping[str, Any]) -> dict[str, str]:
    kind, name = leaf["kind"], leaf["name"]
    if kind in {"tensor", "flat"}:
        return {"kind": kind, "type": f"*{image_type(leaf['dtype'])}", "name": name}
    if kind == "int":
        return {"kind": "int", "type": f"i{leaf['bits']}", "name": name}
    if kind == "bool":
        return {"kind": "int", "type": "u1", "name": name}
    return {"kind": "float", "type": "fp64", "name": name}


def _dtype(name: str) -> Any:
    dtype = getattr(cutlass, _DTYPES.get(name, name.capitalize()), None)
    if dtype is None:
        raise RefusalError(f"this release of CuTe DSL has no {name}")
    return dtype


def _value(value: Any) -> Any:
    """Convert a constant for a CuTe function."""
    if isinstance(value, list):
        return tuple(map(_value, value))
    return _dtype(value["dtype"]) if isinstance(value, dict) else value


_BASE = {
    "x86_64": ("x86-64", "+cx8,+fxsr,+mmx,+sse,+sse2,+x87"),
    "aarch64": ("generic", "+fp-armv8,+neon"),
}
"""Machine -> LLVM's names of its oldest CPU and of that CPU's features."""
_KEY = "passthrough"
_FUNCTION, _FIELD = "llvm.func", "llvm.getelementptr"
_LAUNCH_CONFIG = "!llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>"
# The pointer itself, then the third field, which is `dynamicSmemBytes`.
_DYNAMIC_SHARED = [0, 2]


def make_portable(compiled: Any, *, is_wrapped: bool) -> None:
    """Limit the instructions of a compiled module's host code, before it is exported.

    With `is_wrapped`, the export adds functions for the host's target as a whole;
    releases before 4.8 have no such setting.
    """
    base = _BASE.get(platform.machine())
    if base is None:
        return
    if is_wrapped and hasattr(compiled, "host_target"):
        triple = f"{platform.machine()}-unknown-linux-gnu"
        target = f"llvm -mtriple={triple} -mcpu={base[0]} -mattr={base[1]}"
        compiled.host_target = type(compiled.host_target)(target)
    module = compiled.ir_module
    with module.context:
        for operation in module.body.operations:
            if operation.operation.name == _FUNCTION:
                _fix(operation, *base)


def _fix(function: Any, cpu: str, features: str) -> None:
    known = function.attributes
    own = list(known[_KEY]) if _KEY in known else []
    pairs = (("target-cpu", cpu), ("tune-cpu", cpu), ("target-features", features))
    new = [ir.Attribute.parse(json.dumps(pair)) for pair in pairs]
    known[_KEY] = ir.ArrayAttr.get([*own, *new])


def dynamic_shared(compiled: Any) -> int:
    """Bytes of shared memory that the launches request: the largest constant in the code.

    Sizes that a call computes are unknown; a cubin does not record this memory.
    """
    module = compiled.ir_module
    sizes = [0]
    with module.context:
        for function in module.body.operations:
            for region in function.operation.regions:
                for block in region.blocks:
                    sizes += filter(None, map(_asked_for, block.operations))
    return max(sizes)


def _asked_for(operation: Any) -> int:
    """Constant that a store writes to `dynamicSmemBytes` of `cudaLaunchConfig_t`, or 0."""
    if operation.operation.name != "llvm.store":
        return 0
    value, place = (operand.owner for operand in operation.operands)
    # The owner of a block's argument is the block, which has no name.
    if getattr(place, "name", "") != _FIELD or getattr(value, "name", "") != "llvm.mlir.constant":
        return 0
    struct, indices = str(place.attributes["elem_type"]), place.attributes["rawConstantIndices"]
    if struct != _LAUNCH_CONFIG or list(indices) != _DYNAMIC_SHARED:
        return 0
    return int(ir.IntegerAttr(value.attributes["value"]).value)
