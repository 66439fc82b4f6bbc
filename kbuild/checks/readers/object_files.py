"""Finds which sources use or define a symbol, from the object files of a build tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kbuild.checks.readers.symbols import ElfSymbol, ElfTables
from kbuild.system.workspace import WORKSPACE_FOLDER

# CMake's own trial compilations are no part of the variant.
_TARGET_FOLDER = ".dir"


@dataclass(frozen=True)
class ObjectSymbols:
    """Symbols of the object files, by the source that each was made from."""

    takes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Undefined symbol -> sources that use it."""
    gives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Defined global symbol -> sources that define it."""

    def users(self, symbols: Collection[str]) -> tuple[str, ...]:
        """Sources that use one of the symbols, in name order."""
        return tuple(sorted({source for name in symbols for source in self.takes.get(name, ())}))

    def makers(self, symbols: Collection[str]) -> tuple[str, ...]:
        """Sources that define one of the symbols, in name order."""
        return tuple(sorted({source for name in symbols for source in self.gives.get(name, ())}))


def object_symbols(tree: Path) -> ObjectSymbols:
    """The objects below a variant's build tree; none when it was not built here."""
    files = tuple(
        (path, status.st_size, status.st_mtime_ns)
        for path in object_files(tree)
        for status in [path.stat()]
    )
    return _index(files, tree)


def object_files(tree: Path) -> Iterator[Path]:
    """The objects below a variant's build tree, in path order."""
    for path in sorted(tree.rglob("*.o")) if tree.is_dir() else ():
        if any(part.endswith(_TARGET_FOLDER) for part in path.relative_to(tree).parts):
            yield path


def project_of(tree: Path) -> Path:
    """The project that a build tree is of; the tree itself where no folder above says so."""
    return next((up.parent for up in tree.parents if up.name == WORKSPACE_FOLDER), tree)


def source_of(path: Path, tree: Path) -> str:
    """The source of an object as the project's author knows it: `relu_cpu/relu_cpu.cpp`."""
    parts = path.relative_to(tree).with_suffix("").parts
    start = next(at for at, part in enumerate(parts) if part.endswith(_TARGET_FOLDER)) + 1
    inside = Path(*parts[start:])
    # CMake mirrors absolute paths of sources in its build tree, without the root.
    own = Path(*project_of(tree).parts[1:])
    return (inside.relative_to(own) if inside.is_relative_to(own) else inside).as_posix()


def function_names(path: Path, part: str) -> list[str]:
    """Symbols of an object, local ones too, whose names contain a text."""
    # A search for bytes is quicker than to read all symbols, and most objects have no such name.
    if part.encode() not in path.read_bytes():
        return []
    return sorted({symbol.name for symbol in _symbols(path) if part in symbol.name})


@lru_cache(maxsize=4)
def _index(files: tuple[tuple[Path, int, int], ...], tree: Path) -> ObjectSymbols:
    takes: dict[str, list[str]] = defaultdict(list)
    gives: dict[str, list[str]] = defaultdict(list)
    for path, _, _ in files:
        source = source_of(path, tree)
        for symbol in _symbols(path):
            if symbol.binding != "STB_LOCAL":
                (gives if symbol.defined else takes)[symbol.name].append(source)
    return ObjectSymbols(
        {name: tuple(sources) for name, sources in takes.items()},
        {name: tuple(sources) for name, sources in gives.items()},
    )


def _symbols(path: Path) -> list[ElfSymbol]:
    """The symbols of an object; none of a file that is not an ELF object."""
    from kbuild.checks.readers.fast_elf import FastElf

    with path.open("rb") as file:
        try:
            return list(ElfTables(FastElf(file)).symbols("SHT_SYMTAB"))
        except Exception:  # noqa: BLE001 - of many kinds; who brings it in is an extra
            return []
