"""Reads what Windows' loader sees of a PE file, through pefile."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.checks.readers.elf import sound_binary

_CPUS = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "i686"}
_DLL = 0x2000  # IMAGE_FILE_DLL
_DIRECTORIES = ("EXPORT", "IMPORT", "DELAY_IMPORT")


@dataclass(frozen=True)
class PeFile:
    """A DLL or extension module."""

    cpu: str
    """The name in wheels; the machine's number where wheels have no name."""
    shared: bool
    imports: Mapping[str, tuple[str, ...]]
    """DLL as the file spells it -> names taken from it, `#12` for ordinals."""
    exported: tuple[str, ...]


def is_pe(path: Path) -> bool:
    """True when the file begins with the DOS stub that every PE file has."""
    with path.open("rb") as file:
        return file.read(2) == b"MZ"


def read_pe(path: Path) -> PeFile:
    """Read one file; a second look at an unchanged file costs nothing.

    Raises:
        UnreadableBinaryError: not a PE file, or a damaged one.
    """
    status = path.stat()
    return _read(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, _size: int, _mtime: int) -> PeFile:
    import pefile

    # Mapped here: pefile's own file runs a full garbage collection when it is closed.
    with (
        sound_binary("PE"),
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        file = pefile.PE(data=data, fast_load=True)
        names = [f"IMAGE_DIRECTORY_ENTRY_{name}" for name in _DIRECTORIES]
        numbers = [pefile.DIRECTORY_ENTRY[name] for name in names]
        file.parse_data_directories(directories=numbers)
        machine = int(file.FILE_HEADER.Machine)
        exports = getattr(file, "DIRECTORY_ENTRY_EXPORT", None)
        symbols = exports.symbols if exports else ()
        return PeFile(
            cpu=_CPUS.get(machine, hex(machine)),
            shared=bool(file.FILE_HEADER.Characteristics & _DLL),
            imports=dict(_imports(file)),
            exported=tuple(_text(symbol.name) for symbol in symbols if symbol.name),
        )


def _imports(file: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for directory in ("DIRECTORY_ENTRY_IMPORT", "DIRECTORY_ENTRY_DELAY_IMPORT"):
        for entry in getattr(file, directory, ()):
            names = (
                _text(symbol.name) if symbol.name else f"#{symbol.ordinal}"
                for symbol in entry.imports
            )
            yield _text(entry.dll), tuple(names)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
