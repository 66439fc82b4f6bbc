"""Makes calls of `cute.compile` again, with CuTe DSL: in builds, and in packages with a JIT.

kbuild copies this file into packages, which import it if a call is compiled there.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

import cutlass  # type: ignore[import-not-found]
from cutlass import cute
from cutlass.cute import runtime  # type: ignore[import-not-found]

_NUMBERS = {"int": 1, "float": 1.0, "bool": True}
_LONG = 64


class RecordedCall:
    """The values of one recorded call, made again; the inverse of `CompilationDescriber`."""

    def __init__(self, import_module: Callable[[str], ModuleType]) -> None:
        """`import_module` imports one of the author's modules."""
        self._import_module = import_module
        self._symbols: dict[int, Any] = {}

    def arguments(self, record: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the callable with its arguments, and the keywords."""
        given = [self.value(record["callable"]), *map(self.value, record["arguments"])]
        keywords = record.get("keywords", {})
        return given, {name: self.value(each) for name, each in keywords.items()}

    def value(self, described: Any) -> Any:
        """Return the value that a description means."""
        if isinstance(described, list):
            return tuple(map(self.value, described))
        if not isinstance(described, dict):
            return described
        kind = next(iter(described))
        result: Any = getattr(self, f"_{kind}")(**described)
        return result

    def _list(self, list: list[Any]) -> Any:  # noqa: A002 - the key of the description
        return [*map(self.value, list)]

    def _dict(self, dict: list[Any]) -> Any:  # noqa: A002
        return {self.value(key): self.value(each) for key, each in dict}

    def _call(self, call: str, items: list[Any], keywords: Mapping[str, Any]) -> Any:
        own = {name: self.value(each) for name, each in keywords.items()}
        return self._imported(call)(*map(self.value, items), **own)

    def _attribute(self, attribute: str, of: Any) -> Any:
        return getattr(self.value(of), attribute)

    def _named(self, name: Any) -> Any:
        """Return a class or function: a name, or the description of how it is made."""
        return self._imported(name) if isinstance(name, str) else self.value(name)

    def _imported(self, name: str) -> Any:
        module, _, path = name.partition(":")
        return functools.reduce(getattr, path.split("."), self._import_module(module))

    def _namedtuple(self, namedtuple: Any, items: list[Any]) -> Any:
        return self._named(namedtuple)(*map(self.value, items))

    def _dtype(self, dtype: str) -> Any:
        return getattr(cutlass, dtype)

    def _torch(self, torch: str) -> Any:
        return getattr(importlib.import_module("torch"), torch)

    def _enum(self, enum: str) -> Any:
        owner, _, member = enum.rpartition(".")
        return getattr(self._imported(owner) if ":" in owner else _cutlass_class(owner), member)

    def _class(self, **described: Any) -> Any:
        return self._named(described["class"])

    def _function(self, function: Any) -> Any:
        return self._named(function)

    def _method(self, method: str, of: Any) -> Any:
        return getattr(self.value(of), method)

    def _partial(self, partial: Any, items: list[Any], keywords: Mapping[str, Any]) -> Any:
        own = {name: self.value(each) for name, each in keywords.items()}
        return functools.partial(self.value(partial), *map(self.value, items), **own)

    def _object(self, object: Any, attributes: Mapping[str, Any]) -> Any:  # noqa: A002
        return self._instance(self._named(object), attributes)

    def _dsl(self, dsl: str, attributes: Mapping[str, Any]) -> Any:
        return self._instance(_cutlass_class(dsl), attributes)

    def _instance(self, kind: Any, attributes: Mapping[str, Any]) -> Any:
        instance = kind.__new__(kind)
        for name, each in attributes.items():
            # Some of the author's classes are frozen.
            vars(instance)[name] = self.value(each)
        return instance

    def _number(self, number: str, value: Any = None) -> Any:
        if number in _NUMBERS:
            return _NUMBERS[number]
        return getattr(cutlass, number)(1 if value is None else value)

    def _symbol(self, symbol: int, bits: int = 32, divisor: int = 1) -> Any:
        if symbol not in self._symbols:
            make = cute.sym_int64 if bits == _LONG else cute.sym_int32
            self._symbols[symbol] = make(divisibility=divisor)
        return self._symbols[symbol]

    def _tensor(  # noqa: PLR0917 - the keys of the description
        self,
        tensor: str,
        shape: list[Any],
        strides: list[Any],
        align: int,
        memory: str = "gmem",
        stride_bits: int = 64,
    ) -> Any:
        return runtime._FakeTensor(  # noqa: SLF001 - its public makers derive the strides
            self._dtype(tensor),
            self.value(shape),
            stride=self.value(strides),
            memspace=cute.AddressSpace[memory],
            assumed_align=align,
            use_32bit_stride=stride_bits != _LONG,
        )

    def _dlpack(
        self,
        dlpack: str,
        shape: list[Any],
        strides: list[Any],
        align: int,
        stride_bits: int = 64,
    ) -> Any:
        stride = cute.sym_int64 if stride_bits == _LONG else cute.sym_int32
        sizes = tuple(_number_or_any(size, cute.sym_int32) for size in shape)
        steps = tuple(_number_or_any(step, stride) for step in strides)
        return runtime.make_fake_tensor(self._dtype(dlpack), sizes, steps, assumed_align=align)

    def _pointer(self, pointer: str, memory: str, align: int) -> Any:
        space = cute.AddressSpace[memory]
        return runtime.make_ptr(self._dtype(pointer), 0, space, assumed_align=align)

    def _stream(self, stream: str) -> Any:
        return runtime.make_fake_stream(use_tvm_ffi_env_stream=stream == "current")


def _number_or_any(described: Any, make: Callable[..., Any]) -> Any:
    return described if isinstance(described, int) else make(**(described or {}))


def _cutlass_class(name: str) -> type:
    """The DSL's enumeration or dataclass of that name, wherever it is defined."""
    for module in sorted(name for name in sys.modules if name.partition(".")[0] == "cutlass"):
        value = vars(sys.modules[module]).get(name)
        if isinstance(value, enum.EnumMeta) or dataclasses.is_dataclass(value):
            return cast("type", value)
    raise ValueError(f"this release of CuTe DSL has no `{name}`")
