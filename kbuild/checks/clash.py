"""A kernel offers its entry point to the process, and nothing that another may take for its own.

The dynamic linker binds a name to the first library in scope that offers it. Python loads
extensions apart from each other, but not every program does: `ctypes` has `RTLD_GLOBAL`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.libraries import elf_libraries, has_libraries, is_kernel, some
from kbuild.checks.readers.mangled import namespace
from kbuild.checks.readers.objects import objects_of
from kbuild.checks.readers.policies import load, matches
from kbuild.checks.readers.tables import Symbol
from kbuild.variant import Variant

_LISTED = 100  # symbols of headers in a finding: a kernel with many templates has 100 000
_WEAK = ("STB_WEAK", "STB_GNU_UNIQUE")


@CHECKS.add
class Clash(Check):
    """Exported dynamic symbols other than the entry point; unique ones are the `unique` check's."""

    name = "clash"
    summary = "The extension exports its entry point, and no symbols that two kernels may share."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Only where there are libraries."""
        return has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding for a kernel's own symbols, one for those of headers."""
        allowed = _allowed(output.variant)
        for where, elf in elf_libraries(output):
            if is_kernel(where, output):
                offered = [s for s in elf.exported if not s.unique and not matches(s.name, allowed)]
                shared = [symbol for symbol in offered if _is_of_headers(symbol)]
                own = sorted({symbol.name for symbol in offered} - {s.name for s in shared})
                yield from self._own(where, own, output)
                yield from self._shared(where, shared)

    def _own(self, where: str, names: list[str], output: Output) -> Iterator[Finding]:
        if names:
            what = f"exports {some(names)}: another kernel's symbols of that name clash with it"
            hint = "compile with `-fvisibility=hidden`, or make them `static`"
            makers = objects_of(output).makers(names)
            yield Finding(self.name, "warning", where, what, hint, tuple(names), makers)

    def _shared(self, where: str, symbols: list[Symbol]) -> Iterator[Finding]:
        if symbols:
            counts = Counter(namespace(symbol.name) for symbol in symbols).most_common()
            spaces = ", ".join(f"{count} of `{space or 'types'}`" for space, count in counts)
            what = f"exports {len(symbols)} weak symbols of headers ({spaces})"
            hint = (
                "compile with `-fvisibility=hidden`: a kernel for another release of these headers "
                "may bind to them"
            )
            names = sorted(symbol.name for symbol in symbols)[:_LISTED]
            yield Finding(self.name, "warning", where, what, hint, tuple(names))


def _allowed(variant: Variant | None) -> tuple[str, ...]:
    """Patterns of what a kernel exports on purpose; of any kernel when it is unknown."""
    exports = load("symbols")["exports"]
    chosen = {"any", variant.framework, variant.backend} if variant else exports.keys()
    return tuple(pattern for key in sorted(chosen) for pattern in exports.get(key, ()))


def _is_of_headers(symbol: Symbol) -> bool:
    """Templates and inline functions are weak, and so is what describes a type (`_ZTI`, `_ZTS`)."""
    if symbol.binding not in _WEAK:
        return False
    space = namespace(symbol.name)
    return space in load("symbols")["headers"] or (not space and symbol.name.startswith("_ZT"))
