"""A kernel offers its entry point to the process, and nothing that another may take for its own.

The dynamic linker binds a name to the first library in scope that offers it. Python loads
extensions apart from each other, but not every program does: `ctypes` has `RTLD_GLOBAL`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import elf_libraries, first_names, is_kernel
from kbuild.checks.policies import load_data, matches_any
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.object_files import object_symbols
from kbuild.checks.readers.symbols import ElfSymbol, outermost_namespace
from kbuild.project.variant import Variant

_LISTED = 100  # symbols of headers in a finding: a kernel with many templates has 100 000
_WEAK = ("STB_WEAK", "STB_GNU_UNIQUE")


@CHECKS.add
class ClashCheck(LibraryCheck):
    """Checks exported dynamic symbols other than the entry point; `unique` checks unique ones."""

    name = "clash"
    summary = "The extension exports its entry point, and no symbols that two kernels may share."

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding for a kernel's own symbols, one for those of headers."""
        allowed = _allowed(output.variant)
        for where, elf in elf_libraries(output):
            if is_kernel(where, output):
                own, spaces = _sorted_out(elf)
                own = [name for name in own if not matches_any(name, allowed)]
                yield from self._own(where, sorted(own), output)
                yield from self._shared(where, spaces)

    def _own(self, where: str, names: list[str], output: Output) -> Iterator[Finding]:
        if names:
            what = (
                f"exports {first_names(names)}: another kernel's symbols of that name clash with it"
            )
            hint = (
                "compile with `-fvisibility=hidden`, make them `static`, or write `.hidden NAME` "
                "in assembler"
            )
            makers = object_symbols(output.object_tree).makers(names)
            yield Finding(self.name, "warning", where, what, hint, tuple(names), makers)

    def _shared(self, where: str, spaces: Mapping[str, list[str]]) -> Iterator[Finding]:
        if spaces:
            sizes = sorted(((len(names), space) for space, names in spaces.items()), reverse=True)
            listed = ", ".join(f"{size} of `{space}`" for size, space in sizes)
            count = sum(size for size, _ in sizes)
            what = f"exports {count} weak symbols of headers ({listed})"
            hint = (
                "compile with `-fvisibility=hidden`: a kernel for another release of these headers "
                "may bind to them"
            )
            names = tuple(sorted(name for names in spaces.values() for name in names))
            yield Finding(self.name, "warning", where, what, hint, names[:_LISTED])


def _allowed(variant: Variant | None) -> tuple[str, ...]:
    """Patterns of what a kernel exports on purpose; of any kernel when it is unknown."""
    exports = load_data("symbols")["exports"]
    chosen = {"any", variant.framework, variant.backend} if variant else exports.keys()
    return tuple(pattern for key in sorted(chosen) for pattern in exports.get(key, ()))


def _sorted_out(elf: ElfFile) -> tuple[list[str], dict[str, list[str]]]:
    """A kernel's own exported symbols, and those of headers by namespace."""
    own: list[str] = []
    spaces: dict[str, list[str]] = defaultdict(list)
    for symbol in elf.exported:
        if not symbol.unique:  # the check `unique` reports these
            space = _headers(symbol)
            (own if space is None else spaces[space]).append(symbol.name)
    return own, spaces


def _headers(symbol: ElfSymbol) -> str | None:
    """The library whose headers the symbol comes from; None for a kernel's own.

    Templates, inline functions and what describes a type (`_ZTI`) are weak, and every kernel
    compiles its own copy.
    """
    if symbol.binding not in _WEAK:
        return None
    space = outermost_namespace(symbol.name)
    if not space:
        return "types" if symbol.name.startswith("_ZT") else None
    return space if space in load_data("symbols")["headers"] else None
