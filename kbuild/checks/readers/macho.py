"""Reads what macOS's dynamic linker sees of a Mach-O file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.checks.readers.elf import UnreadableBinaryError, cached_while_unchanged, sound_binary
from kbuild.system.version import Version

_MAGIC = tuple(
    bytes.fromhex(text)
    for text in ("feedface", "cefaedfe", "feedfacf", "cffaedfe", "cafebabe", "cafebabf")
)
_CPUS = {0x01000007: "x86_64", 0x0100000C: "aarch64", 7: "i686", 12: "armv7l"}
_WIDE = 0x01000000  # CPU_ARCH_ABI64
_MACOS, _MH_DYLIB, _MH_BUNDLE = 1, 6, 8
_EXTERNAL, _TYPE, _UNDEFINED, _STAB = 0x01, 0x0E, 0x00, 0xE0
_DYLIBS = ("LC_LOAD_DYLIB", "LC_LOAD_WEAK_DYLIB", "LC_REEXPORT_DYLIB", "LC_LAZY_LOAD_DYLIB")


@dataclass(frozen=True)
class MachOSlice:
    """The part of a file for one CPU."""

    cpu: str
    """The name in wheels (`aarch64` is Apple's arm64); a number where wheels have no name."""
    shared: bool
    for_macos: bool
    minos: Version | None
    """The oldest macOS that loads it (LC_BUILD_VERSION, or LC_VERSION_MIN_MACOSX before it)."""
    needed: tuple[str, ...]
    """Install names: `@rpath/libtorch.dylib`."""
    rpaths: tuple[str, ...]
    undefined: tuple[str, ...]
    """Names as C spells them, without the leading underscore."""
    exported: tuple[str, ...]


def is_macho(path: Path) -> bool:
    """True when the file begins like a Mach-O file, for one CPU or several."""
    with path.open("rb") as file:
        return file.read(4) in _MAGIC


@cached_while_unchanged
def read_macho(path: Path) -> tuple[MachOSlice, ...]:
    """The slices of one file.

    Raises:
        UnreadableBinaryError: not a Mach-O file, or a damaged one.
    """
    from macholib.MachO import MachO

    with sound_binary("Mach-O"):
        file = MachO(str(path), allow_unknown_load_commands=True)
        content = path.read_bytes()
        slices = tuple(_slice(header, content) for header in file.headers)
    if not slices:
        raise UnreadableBinaryError("not a valid Mach-O file: it is for no CPU")
    return slices


def _slice(header: Any, content: bytes) -> MachOSlice:
    commands = [(load.get_cmd_name(), command, data) for load, command, data in header.commands]
    kind = int(header.header.cputype)
    undefined, exported = _names(header, commands, content)
    return MachOSlice(
        cpu=_CPUS.get(kind, str(kind)),
        shared=int(header.header.filetype) in (_MH_DYLIB, _MH_BUNDLE),
        for_macos=all(
            int(command.platform) == _MACOS
            for name, command, _ in commands
            if name == "LC_BUILD_VERSION"
        ),
        minos=next(_minimum_versions(commands), None),
        needed=tuple(_text(data) for name, _, data in commands if name in _DYLIBS),
        rpaths=tuple(_text(data) for name, _, data in commands if name == "LC_RPATH"),
        undefined=undefined,
        exported=exported,
    )


def _minimum_versions(commands: list[tuple[Any, Any, Any]]) -> Iterator[Version]:
    for name, command, _ in commands:
        if name == "LC_BUILD_VERSION":
            yield _version(int(command.minos))
        elif name == "LC_VERSION_MIN_MACOSX":
            yield _version(int(command.version))


def _version(packed: int) -> Version:
    """`xxxx.yy.zz` in nibbles; a patch of zero is not written."""
    parts = (packed >> 16, packed >> 8 & 0xFF, packed & 0xFF)
    return Version(parts if parts[2] else parts[:2])


def _text(data: bytes) -> str:
    """The text after the fixed part of a command that names a file."""
    return data.split(b"\0")[0].decode("utf-8", "replace")


def _names(
    header: Any, commands: list[tuple[Any, Any, Any]], content: bytes
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    table = next((command for name, command, _ in commands if name == "LC_SYMTAB"), None)
    if table is None:
        return (), ()
    wide = int(header.header.cputype) & _WIDE
    layout = struct.Struct(f"{header.endian}IBBH{'Q' if wide else 'I'}")
    strings = _slice_of(content, header.offset + int(table.stroff), int(table.strsize))
    start, size = header.offset + int(table.symoff), int(table.nsyms) * layout.size
    undefined: list[str] = []
    exported: list[str] = []
    for offset, kind, _, _, value in layout.iter_unpack(_slice_of(content, start, size)):
        if kind & _STAB or not kind & _EXTERNAL:
            continue
        name = strings[offset : strings.index(b"\0", offset)].decode("utf-8", "replace")
        # An undefined symbol with a value is a common one: defined here after all.
        taken = kind & _TYPE == _UNDEFINED and not value
        (undefined if taken else exported).append(name.removeprefix("_"))
    return tuple(undefined), tuple(exported)


def _slice_of(content: bytes, start: int, size: int) -> bytes:
    """Bytes of the file.

    Raises:
        ValueError: it ends before.
    """
    if start + size > len(content):
        raise ValueError("a table lies outside of the file")
    return content[start : start + size]
