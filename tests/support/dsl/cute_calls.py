"""Calls of objects of CuTe DSL without a GPU: its own runtime, on a CUDA runtime that is none."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "tests" / "support" / "fakes" / "cute_runtime.c"
CMAKE = next((ROOT / "templates" / "project").rglob("aot.cmake*"))
DTYPES = {"float32": (2, 32), "float16": (2, 16), "int32": (0, 32)}


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _Dtype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Value(ctypes.Union):
    _fields_ = (("i", ctypes.c_int64), ("f", ctypes.c_double), ("p", ctypes.c_void_p))


class _Any(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("zero", ctypes.c_uint32), ("value", _Value))


@dataclass(frozen=True)
class Tensor:
    """One on a GPU that is not there."""

    data: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float32"
    device: int = 0


class Linked:
    """An object with what it is linked with."""

    def __init__(self, entry: str, given: Sequence[str], folder: Path) -> None:
        library = folder / f"{entry}.so"
        command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(library)]
        given = [*given, str(FAKE)]
        _run([*command, *given])
        listed = _run(["nm", "-u", str(library)]).split()
        missing = [name for name in listed if name.startswith("cuda")]
        (folder / "rest.c").write_text(
            "".join(f"int {name}(void) {{ return 801; }}\n" for name in missing)
        )
        _run([*command, *given, str(folder / "rest.c")])
        self._library = ctypes.CDLL(str(library))
        self._function = getattr(self._library, entry)
        for name, kind in (
            ("text", ctypes.c_char_p),
            ("said", ctypes.c_char_p),
            ("stream", ctypes.c_size_t),
        ):
            getattr(self._library, f"fake_{name}").restype = kind
        self._library.fake_value.restype = ctypes.POINTER(ctypes.c_ubyte * 64)
        self._library.fake_begin.argtypes = [ctypes.c_int, ctypes.c_size_t]

    def function(self, name: str) -> Any:
        """Another function of the library."""
        return getattr(self._library, name)

    def begin(self) -> None:
        """Forget what happened."""
        self._library.fake_begin(0, 0)

    def call(self, *arguments: Any, parameters: int = 0, stream: int = 0x5742) -> str:
        """What went wrong; the first `parameters` of the kernel's can be looked at."""
        self._library.fake_begin(parameters, stream)
        given = (_Any * max(1, len(arguments)))()
        kept = [_fill(given[at], value) for at, value in enumerate(arguments)]
        failed = self._function(None, given, len(arguments), ctypes.byref(_Any()))
        del kept
        said: bytes = self._library.fake_said()
        assert bool(failed) == bool(said), (failed, said)
        return said.decode()

    @property
    def events(self) -> list[str]:
        text: bytes = self._library.fake_text()
        return text.decode().splitlines()

    @property
    def grid(self) -> int:
        return int(self._library.fake_grid())

    @property
    def stream(self) -> int:
        return int(self._library.fake_stream())

    def value(self, at: int) -> bytes:
        """The bytes from a kernel's parameter on."""
        return bytes(self._library.fake_value(at).contents)


def joined(objects: Sequence[Path], archives: Sequence[Path], aliases: Path, target: Path) -> None:
    """As `templates/project/cmake/aot.cmake` does it."""
    text = CMAKE.read_text("utf-8")
    flags = re.findall(r'"(--(?:keep-global|weaken)-symbol=[^"]*)"', text)
    assert len(flags) == 3
    listed = aliases.with_suffix(".cmake").read_text("utf-8")
    flags += re.findall(r"set\(launches (.*)\)", listed)
    whole = f"{target}.all"
    linked = [*map(str, objects), *map(str, archives), str(aliases)]
    _run(["ld", "-r", "--force-group-allocation", "-o", whole, *linked])
    _run(["objcopy", "--wildcard", *flags, whole, str(target)])


def _fill(target: _Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        rank = len(value.shape)
        code, bits = DTYPES[value.dtype]
        tensor = _Tensor(
            value.data, _Device(2, value.device), rank, _Dtype(code, bits, 1),
            (ctypes.c_int64 * rank)(*value.shape), (ctypes.c_int64 * rank)(*value.strides), 0,
        )  # fmt: skip
        target.type, target.value.p = 7, ctypes.addressof(tensor)
        return tensor
    if isinstance(value, float):
        target.type, target.value.f = 3, value
    else:
        target.type, target.value.i = 2 if isinstance(value, bool) else 1, value
    return None


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert done.returncode == 0, done.stderr
    return done.stdout
