"""The names that a library takes and offers, whatever its file format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.checks.base import Output
from kbuild.checks.readers.elf import UnreadableBinaryError, is_elf, read_elf
from kbuild.checks.readers.macho import MachSlice, is_macho, read_macho
from kbuild.checks.readers.pe import PeFile, is_pe, read_pe


@dataclass(frozen=True)
class Names:
    """Names as C or the C++ compiler spells them, in name order."""

    where: str
    undefined: tuple[str, ...]
    exported: tuple[str, ...]


def names_of(output: Output) -> Iterator[Names]:
    """Of every sound library; the `binary` check reports the others."""
    for path in output.libraries():
        try:
            undefined, exported = _read(path)
        except (UnreadableBinaryError, OSError):
            continue
        yield Names(output.name_of(path), tuple(sorted(undefined)), tuple(sorted(exported)))


def _read(path: Path) -> tuple[set[str], set[str]]:
    if is_elf(path):
        elf = read_elf(path)
        return {s.name for s in elf.undefined}, {s.name for s in elf.exported}
    if is_macho(path):
        slices = read_macho(path)
        undefined = {name for part in slices for name in part.undefined}
        # What one CPU lacks is missing there.
        return undefined, set.intersection(*(set(part.exported) for part in slices))
    if is_pe(path):
        file = read_pe(path)
        return {name for names in file.imports.values() for name in names}, set(file.exported)
    raise UnreadableBinaryError("neither ELF nor Mach-O nor PE")


def macho_libraries(output: Output) -> Iterator[tuple[str, tuple[MachSlice, ...]]]:
    """Name and slices of every sound Mach-O library."""
    for path in output.libraries():
        try:
            if is_macho(path):
                yield output.name_of(path), read_macho(path)
        except (UnreadableBinaryError, OSError):
            continue


def pe_libraries(output: Output) -> Iterator[tuple[str, PeFile]]:
    """Name and view of every sound PE library."""
    for path in output.libraries():
        try:
            if is_pe(path):
                yield output.name_of(path), read_pe(path)
        except (UnreadableBinaryError, OSError):
            continue
