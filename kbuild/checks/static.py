"""No library that the process already has is linked in statically; stripped files show it, too."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output, Severity
from kbuild.checks.libraries import elf_libraries, first_names
from kbuild.checks.policies import load_data, matches_any
from kbuild.checks.readers.elf import (
    ElfFile,
    UnreadableBinaryError,
    cached_while_unchanged,
    sound_binary,
)
from kbuild.checks.readers.symbols import ElfTables


@dataclass(frozen=True)
class StaticLibraryTrace:
    """A library that is inside a file, and how that is known."""

    library: Mapping[str, Any]
    """Entry of the library in `data/static.json`."""
    symbols: tuple[str, ...]
    texts: tuple[str, ...]


@cached_while_unchanged
def find_static_libraries(path: Path) -> tuple[StaticLibraryTrace, ...]:
    """Libraries of `data/static.json` that are inside an ELF file.

    Raises:
        UnreadableBinaryError: it is not a valid one.
    """
    from kbuild.checks.readers.fast_elf import FastElf

    with (
        sound_binary("ELF"),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        elf = FastElf(file)
        loaded = [
            _segment_extent(segment, len(content)) for segment in elf.iter_segments("PT_LOAD")
        ]
        return tuple(_traces_in(ElfTables(elf), content, loaded))


def _traces_in(
    tables: ElfTables, content: mmap.mmap, loaded: list[tuple[int, int]]
) -> Iterator[StaticLibraryTrace]:
    libraries = load_data("static")["libraries"]
    wanted = {name for library in libraries for name in library["symbols"]}
    defined = tables.defined(wanted) | tables.defined(wanted, "SHT_DYNSYM")
    for library in libraries:
        symbols = [name for name in library["symbols"] if name in defined]
        prefix = library.get("symbol-prefix")
        if prefix and tables.has_prefix(prefix):
            symbols.append(f"{prefix}*")
        # Texts stay in a stripped file; debug sections, which are not loaded, prove nothing.
        texts = [text for text in library["strings"] if _contains(content, text, loaded)]
        if symbols or texts:
            yield StaticLibraryTrace(library, tuple(symbols), tuple(texts))


def _contains(content: mmap.mmap, text: str, loaded: list[tuple[int, int]]) -> bool:
    return any(content.find(text.encode(), begin, end) >= 0 for begin, end in loaded)


def _segment_extent(segment: Any, size: int) -> tuple[int, int]:
    begin = segment["p_offset"]
    return min(begin, size), min(begin + segment["p_filesz"], size)


@CHECKS.add
class StaticCheck(LibraryCheck):
    """Two copies of libstdc++ do not catch each other's exceptions; two CUDA runtimes load twice.

    kbuild's own manylinux link adds what a newer libstdc++ has and the policy's has not. None of
    that is among the traces, which are of functions and texts that every libstdc++ has.
    """

    name = "static"
    summary = "No statically linked libstdc++, libgcc, CUDA runtime or Python."

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file and library inside it."""
        framework = output.variant.framework if output.variant else "torch"
        for where, elf in elf_libraries(output):
            try:
                traces = find_static_libraries(output.root / where)
            except UnreadableBinaryError as error:
                yield Finding(self.name, "error", where, str(error), "rebuild the variant")
                continue
            for trace in traces:
                if framework in trace.library["frameworks"]:
                    what = f"has {trace.library['name']} inside: {_evidence(trace, elf)}"
                    severity, hint = _severity(trace, elf), trace.library["hint"]
                    yield Finding(self.name, severity, where, what, hint, trace.symbols)


def _shared(trace: StaticLibraryTrace, elf: ElfFile) -> str | None:
    """The shared form of the library, where the file needs that too."""
    shared = tuple(trace.library["shared"])
    return next((library for library in elf.needed if matches_any(library, shared)), None)


def _severity(trace: StaticLibraryTrace, elf: ElfFile) -> Severity:
    """The severity: a text alone proves little if the file needs the shared library as well."""
    severity: Severity = trace.library["severity"]
    return severity if trace.symbols or not _shared(trace, elf) else "warning"


def _evidence(trace: StaticLibraryTrace, elf: ElfFile) -> str:
    proof = f"it defines {first_names(list(trace.symbols), 3)}" if trace.symbols else ""
    proof = proof or f"its data holds {first_names(list(trace.texts))}"
    shared = _shared(trace, elf)
    return f"{proof}, and it needs `{shared}` as well" if shared else proof
