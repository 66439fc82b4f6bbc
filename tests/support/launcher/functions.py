"""Launchers for TVM-FFI in tests: compiled, loaded, and called as Torch's ops are or through C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.dsl.launcher.resolved_kernel import ResolvedOp
from kbuild.ops.model import OpSpec
from kbuild.system.files import FileSet
from tests.support.stores import shared_library

INT, BOOL, FLOAT, POINTER = 1, 2, 3, 7
CPU, CUDA = 1, 2


def runtime() -> Path:
    """The package's folder."""
    import tvm_ffi

    return Path(tvm_ffi.__file__).parent


def runtime_library() -> ctypes.CDLL:
    """Its C functions."""
    return ctypes.CDLL(str(runtime() / "lib" / "libtvm_ffi.so"))


def use_stream(device: int, stream: int) -> None:
    """The current one of a CUDA device in this thread, until another is used."""
    function = runtime_library().TVMFFIEnvSetStream
    function.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    assert function(CUDA, device, stream, None) == 0


def without_fallback(ops: Sequence[ResolvedOp]) -> tuple[ResolvedOp, ...]:
    """Ops for TVM-FFI, which has no DSL to fall back on."""
    return tuple(ResolvedOp(replace(op.spec, fallback="none"), op.launches) for op in ops)


def library(
    files: FileSet, folder: Path, name: str, *, tested: bool = True, root: Path | None = None
) -> Path:
    """Compile launchers for the TVM-FFI that is here, or for the one in `root`.

    Those that are `tested` take memory of the host for that of the fake driver.
    """
    root = root or runtime()
    files.write(folder, manifest=False)
    target = folder / f"{name}.so"
    exports = folder / "exports.map"
    exports.write_text("{ global: __tvm_ffi_*; local: *; };\n")
    sources = [str(folder / path) for path, _ in files.items() if path.endswith((".cpp", ".o"))]
    defined = ("-DKBUILD_AOT_TEST_CPU",) if tested else ()
    command = (
        *("g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
        *("-fvisibility=hidden", f"-I{folder / 'aot'}"),
        *("-isystem", str(root / "include"), f"-Wa,-I{folder / 'aot'}", *defined, *sources),
        *(f"-L{root / 'lib'}", "-ltvm_ffi", "-Wl,--no-undefined", "-ldl"),
        f"-Wl,--version-script={exports}",
    )
    shared_library(command, target, files, (folder, root))
    return target


class Functions:
    """The functions of a library, called as Torch's ops: with defaults and by keyword."""

    def __init__(self, path: Path, specs: Sequence[OpSpec]) -> None:
        import tvm_ffi

        self.path = path
        self.module = tvm_ffi.load_module(str(path))
        self.schemas = {spec.name: spec.schema for spec in specs}

    def __getattr__(self, name: str) -> Any:
        function = self.module[name]
        schema = self.schemas.get(name)
        if schema is None:
            return function

        def call(*given: Any, **named: Any) -> Any:
            defaults = {a.name: a.default.value for a in schema.arguments if a.default is not None}
            rest = {**defaults, **named}
            names = [argument.name for argument in schema.arguments[len(given) :]]
            result = function(*given, *(rest[one] for one in names))
            return tuple(result) if len(schema.returns) > 1 else result

        return call


class Any_(ctypes.Structure):  # noqa: N801
    """TVMFFIAny."""

    class Value(ctypes.Union):
        """8 bytes."""

        _fields_ = (
            ("integer", ctypes.c_int64),
            ("real", ctypes.c_double),
            ("pointer", ctypes.c_void_p),
        )

    _fields_ = (("type", ctypes.c_int32), ("zero", ctypes.c_uint32), ("value", Value))


class DLTensor(ctypes.Structure):
    """DLPack's."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def described(array: Any, **changes: Any) -> DLTensor:
    """A NumPy array as a plain caller in C describes it: without strides."""
    codes = {"f": 2, "i": 0, "u": 1, "b": 6}
    kind = {"code": codes[array.dtype.kind], "bits": array.itemsize * 8}
    return packed_tensor(array.ctypes.data, array.shape, **{**kind, **changes})


def packed_tensor(address: int, shape: tuple[int, ...], **changes: Any) -> DLTensor:
    """A tensor of float32 in the host's memory, but for what changes."""
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    told = DLTensor(address, CPU, 0, len(shape), 2, 32, 1, sizes)
    strides = changes.pop("strides", None)
    if strides is not None:
        told.strides = (ctypes.c_int64 * len(strides))(*strides)
    for name, value in changes.items():
        setattr(told, name, value)
    return told


def packed(value: Any) -> Any_:
    """An argument."""
    made = Any_()
    if isinstance(value, DLTensor):
        made.type, made.value.pointer = POINTER, ctypes.addressof(value)
    elif isinstance(value, float):
        made.type, made.value.real = FLOAT, value
    elif value is not None:
        made.type, made.value.integer = BOOL if isinstance(value, bool) else INT, value
    return made


class Raised(Exception):  # noqa: N818
    """What a function set, as `kind: message`."""


class Caller:
    """Calls functions as C does."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._runtime = runtime_library()
        self._runtime.TVMFFIErrorMoveFromRaised.argtypes = [ctypes.c_void_p]
        self._runtime.TVMFFIErrorMoveFromRaised.restype = None
        self._runtime.TVMFFIObjectDecRef.argtypes = [ctypes.c_void_p]

    def __call__(self, name: str, *arguments: Any, count: int | None = None) -> Any_:
        given = (Any_ * max(1, len(arguments)))(*(packed(one) for one in arguments))
        result = Any_(type=-1)
        function = getattr(self._library, f"__tvm_ffi_{name}")
        number = len(arguments) if count is None else count
        if function(None, given, ctypes.c_int32(number), ctypes.byref(result)) != 0:
            raise Raised(self._raised())
        return result

    def _raised(self) -> str:
        error = ctypes.c_void_p()
        self._runtime.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        assert error.value is not None, "it failed and says nothing"
        texts = (ctypes.c_uint64 * 4).from_address(error.value + 24)
        kind, message = (ctypes.string_at(texts[at], texts[at + 1]).decode() for at in (0, 2))
        self._runtime.TVMFFIObjectDecRef(error)
        return f"{kind}: {message}"


def half(*shape: int) -> Any:
    """A tensor of Torch."""
    import torch

    return torch.ones(shape, dtype=torch.float16)


def ones(*shape: int) -> Any:
    """An array of NumPy."""
    import numpy as np

    return np.ones(shape, np.float16)


def only_launch(driver: Any) -> Any:
    """What the fake driver was told of the one launch since it was last asked."""
    (record,) = driver.launches()
    return record
