"""Compiles recorded calls of `cute.compile`, with the author's objects made again."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

# Some libraries tell the DSL's functions from their own by this folder, where users have it.
_PACKAGES = Path(os.environ["TMPDIR"], "site-packages")
_PACKAGES.symlink_to(sys.path[0])
sys.path[0] = str(_PACKAGES)

from kbuild.dsl.worker.cute import (  # noqa: E402
    CuteCompiler,
    compile_unless_known,
    intercept_compile,
    write_tvm_ffi,
)
from kbuild.dsl.worker.cute_compilation import dynamic_shared, make_portable  # noqa: E402
from kbuild.dsl.worker.protocol import RefusalError  # noqa: E402
from kbuild.dsl.worker.sources import SourceModules  # noqa: E402

import cutlass  # type: ignore[import-not-found]  # noqa: E402  # isort: skip
from cutlass import cute  # noqa: E402  # isort: skip
from cutlass.cute import runtime  # type: ignore[import-not-found]  # noqa: E402  # isort: skip

_COMPILED = "compiled"
_NUMBERS = {"int": 1, "float": 1.0, "bool": True}
_LONG = 64


class RecordedFunction:
    """The one function of every section: `record`, a constant, says what is compiled."""

    def describe(self) -> dict[str, Any]:
        """JSON object of the function."""
        return {
            "name": _COMPILED,
            "parameters": [{"name": "record", "constant": True, "default": False}],
        }


def _functions(
    module: ModuleType,  # noqa: ARG001
    owns: Callable[[str], bool],  # noqa: ARG001
) -> Mapping[str, RecordedFunction]:
    return {_COMPILED: RecordedFunction()}


class CompilationCompiler(CuteCompiler):
    """Compiler for recorded calls, see `protocol.WorkerCompiler`."""

    functions = _functions  # type: ignore[assignment]

    def compile_function(
        self,
        function: Any,  # noqa: ARG002
        request: Mapping[str, Any],
        sources: SourceModules,
    ) -> Mapping[str, Any]:
        """See `ObjectCompiler.compile_function`."""
        record = json.loads(request["record"])
        try:
            given, keywords = RecordedCall().arguments(record)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"the recorded call cannot be made again: {type(error).__name__}: {error}"
            hint = "record it again: `kbuild capture --record --replace -- COMMAND`"
            raise RefusalError(message, hint=hint) from error
        with intercept_compile(lambda text: self.named(request, text)) as kernel:
            compiled = compile_unless_known(
                given, {**keywords, "options": "--enable-tvm-ffi"}, sources
            )
        shared = 0
        if compiled is not None:
            shared = dynamic_shared(compiled)
            make_portable(compiled, is_wrapped=False)
            write_tvm_ffi(compiled, kernel.symbol, Path(request["output"]))
        entry = f"__tvm_ffi_{kernel.symbol}"
        return {"convention": "export", "entry": entry, "parameters": [], "shared": shared}


class RecordedCall:
    """The values of one recorded call, made again; the inverse of `CompilationDescriber`."""

    def __init__(self) -> None:
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
        return _named(call)(*map(self.value, items), **own)

    def _attribute(self, attribute: str, of: Any) -> Any:
        return getattr(self.value(of), attribute)

    def _named(self, name: Any) -> Any:
        """Return a class or function: a name, or the description of how it is made."""
        return _named(name) if isinstance(name, str) else self.value(name)

    def _namedtuple(self, namedtuple: Any, items: list[Any]) -> Any:
        return self._named(namedtuple)(*map(self.value, items))

    def _dtype(self, dtype: str) -> Any:
        return getattr(cutlass, dtype)

    def _torch(self, torch: str) -> Any:
        return getattr(importlib.import_module("torch"), torch)

    def _enum(self, enum: str) -> Any:
        owner, _, member = enum.rpartition(".")
        return getattr(_named(owner) if ":" in owner else _cutlass_class(owner), member)

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


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def _cutlass_class(name: str) -> type:
    """The DSL's enumeration or dataclass of that name, wherever it is defined."""
    for module in sorted(name for name in sys.modules if name.partition(".")[0] == "cutlass"):
        value = vars(sys.modules[module]).get(name)
        if isinstance(value, enum.EnumMeta) or dataclasses.is_dataclass(value):
            return cast("type", value)
    raise ValueError(f"this release of CuTe DSL has no `{name}`")


Compiler = CompilationCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
