"""Traces that a statically linked library leaves in an ELF file, also in a stripped one."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.checks.readers.elf import sound
from kbuild.checks.readers.policies import load
from kbuild.checks.readers.tables import Tables


@dataclass(frozen=True)
class Trace:
    """A library that is inside a file, and how that is known."""

    library: Mapping[str, Any]
    """Its entry in `data/static.json`."""
    symbols: tuple[str, ...]
    """Symbols of it that the file defines."""
    texts: tuple[str, ...]
    """Texts of it in the file's data."""


def traces(path: Path) -> tuple[Trace, ...]:
    """Libraries of `data/static.json` that are inside an ELF file.

    Raises:
        UnreadableBinaryError: it is not a sound one.
    """
    status = path.stat()
    return _traces(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _traces(path: Path, _size: int, _mtime: int) -> tuple[Trace, ...]:
    from kbuild.checks.readers.lean import LeanElf

    with (
        sound("ELF"),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        elf = LeanElf(file)
        loaded = [_extent(segment, len(content)) for segment in elf.iter_segments("PT_LOAD")]
        return tuple(_found(Tables(elf), content, loaded))


def _found(tables: Tables, content: mmap.mmap, loaded: list[tuple[int, int]]) -> Iterator[Trace]:
    libraries = load("static")["libraries"]
    wanted = {name for library in libraries for name in library["symbols"]}
    defined = tables.defined(wanted) | tables.defined(wanted, "SHT_DYNSYM")
    for library in libraries:
        symbols = [name for name in library["symbols"] if name in defined]
        prefix = library.get("symbol-prefix")
        if prefix and tables.has_prefix(prefix):
            symbols.append(f"{prefix}*")
        texts = [text for text in library["strings"] if _contains(content, text, loaded)]
        if symbols or texts:
            yield Trace(library, tuple(symbols), tuple(texts))


def _contains(content: mmap.mmap, text: str, loaded: list[tuple[int, int]]) -> bool:
    return any(content.find(text.encode(), begin, end) >= 0 for begin, end in loaded)


def _extent(segment: Any, size: int) -> tuple[int, int]:
    begin = segment["p_offset"]
    return min(begin, size), min(begin + segment["p_filesz"], size)
