"""The shared libraries of an output, and the one that is its extension."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbuild.checks.base import Output
from kbuild.checks.readers.elf import ElfFile, UnreadableBinaryError, is_elf, read_elf
from kbuild.metadata import METADATA_FILE, Metadata, MetadataError, parse

ABI3_SUFFIX = ".abi3.so"


def has_libraries(output: Output) -> bool:
    """True when there is a shared library to look at."""
    return next(output.libraries(), None) is not None


def elf_libraries(output: Output) -> Iterator[tuple[str, ElfFile]]:
    """Name and view of every sound ELF library; the `binary` check reports the others."""
    for path in output.libraries():
        elf = _sound(path)
        if elf is not None:
            yield output.name_of(path), elf


def _sound(path: Path) -> ElfFile | None:
    try:
        return read_elf(path) if is_elf(path) else None
    except (UnreadableBinaryError, OSError):
        return None


def metadata_of(output: Output) -> Metadata | None:
    """The output's metadata; None when absent or wrong, which the `metadata` check reports."""
    try:
        return parse((output.root / METADATA_FILE).read_text("utf-8"))
    except (OSError, UnicodeError, MetadataError):
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


def some(names: list[str], limit: int = 8) -> str:
    """The first names in backticks, and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
