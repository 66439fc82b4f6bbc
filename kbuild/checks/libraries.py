"""The shared libraries of an output: their views, device code and symbols in every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kbuild.checks.base import Output
from kbuild.checks.readers.device_code import DeviceCode, read_device_code
from kbuild.checks.readers.device_image import DeviceCodeError, summarize_images
from kbuild.checks.readers.elf import ElfFile, UnreadableBinaryError, is_elf, read_elf
from kbuild.checks.readers.macho import MachOSlice, is_macho, read_macho
from kbuild.plan.metadata import Metadata, MetadataError, read_metadata

T = TypeVar("T")
ABI3_SUFFIX = ".abi3.so"


def elf_libraries(output: Output) -> Iterator[tuple[str, ElfFile]]:
    """Name and view of every sound ELF library; the `binary` check reports the others."""
    return _sound_libraries(output, is_elf, read_elf)


def macho_libraries(output: Output) -> Iterator[tuple[str, tuple[MachOSlice, ...]]]:
    """Name and slices of every sound Mach-O library."""
    return _sound_libraries(output, is_macho, read_macho)


def _sound_libraries(
    output: Output, fits: Callable[[Path], bool], read: Callable[[Path], T]
) -> Iterator[tuple[str, T]]:
    for path in output.libraries():
        with suppress(UnreadableBinaryError, OSError):
            if fits(path):
                yield output.name_of(path), read(path)


def device_code_rows(output: Output) -> list[dict[str, Any]]:
    """Device code of every library, added up by arch and kind, as JSON objects."""
    return [
        {"library": holder.where, **line.to_json()}
        for holder in libraries_with_device_code(output)
        for line in summarize_images(holder.code.images)
    ]


@dataclass(frozen=True)
class LibraryDeviceCode:
    """A library and the device code in it."""

    path: Path
    where: str
    code: DeviceCode
    damage: str = ""
    """Reason that its device code could not be read; empty when it could."""
    readable: bool = True
    """False when it is no sound ELF file, which the `binary` check reports."""

    @property
    def sound(self) -> bool:
        """True when all of its device code was read."""
        return self.readable and not (self.damage or self.code.unread)


def libraries_with_device_code(output: Output) -> Iterator[LibraryDeviceCode]:
    """Every ELF library with its device code."""
    for path in output.libraries():
        if is_elf(path):
            where = output.name_of(path)
            try:
                yield LibraryDeviceCode(path, where, read_device_code(path))
            except DeviceCodeError as error:
                yield LibraryDeviceCode(path, where, DeviceCode(), str(error))
            except UnreadableBinaryError:
                yield LibraryDeviceCode(path, where, DeviceCode(), readable=False)


def metadata_of(output: Output) -> Metadata | None:
    """The output's metadata; None when absent or wrong, which the `metadata` check reports."""
    try:
        return read_metadata(output.root)
    except (OSError, MetadataError):
        return None


def base_name(path: Path | str) -> str:
    """A library's name without any suffix: `_relu_cpu_0a1b2c3` of `_relu_cpu_0a1b2c3.abi3.so`."""
    return Path(path).name.partition(".")[0]


def is_extension(where: str, output: Output) -> bool:
    """True for the library that Python imports; TVM-FFI loads its library without Python."""
    if output.variant and output.variant.framework == "tvm-ffi":
        return False
    return is_kernel(where, output)


def is_kernel(where: str, output: Output) -> bool:
    """True for the library with the kernel, False for those that it brings along."""
    metadata = metadata_of(output)
    return "/" not in where and (metadata is None or base_name(where) == metadata.id)


def first_names(names: list[str], limit: int = 8) -> str:
    """The first names in backticks, and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


@dataclass(frozen=True)
class LibrarySymbols:
    """Names as C or the C++ compiler spells them, in name order."""

    where: str
    undefined: tuple[str, ...]
    exported: tuple[str, ...]


def library_symbols(output: Output) -> Iterator[LibrarySymbols]:
    """The symbols of every sound library; the `binary` check reports the others."""
    for path in output.libraries():
        with suppress(UnreadableBinaryError, OSError):
            names = [tuple(sorted(part)) for part in _read_symbols(path)]
            yield LibrarySymbols(output.name_of(path), *names)


def _read_symbols(path: Path) -> tuple[set[str], set[str]]:
    if is_elf(path):
        elf = read_elf(path)
        return {s.name for s in elf.undefined}, {s.name for s in elf.exported}
    if is_macho(path):
        slices = read_macho(path)
        undefined = {name for part in slices for name in part.undefined}
        # What one CPU lacks is missing there.
        return undefined, set.intersection(*(set(part.exported) for part in slices))
    raise UnreadableBinaryError("neither ELF nor Mach-O")
