"""Whatever a library takes from elsewhere has somebody to give it.

A shared library may be linked with names that nobody defines; the loader finds out, on the user's
machine. A versioned name is safe: the linker saw its library. The others must be known families of
Torch, Python or the backend's runtime (`data/symbols.json`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.libraries import elf_libraries, has_libraries, some
from kbuild.checks.readers.mangled import entity, is_standard
from kbuild.checks.readers.objects import objects_of
from kbuild.checks.readers.policies import allowed_libraries, load, matches
from kbuild.variant import Variant

_BORROWED_HINT = (
    "Torch exports parts of its own libstdc++, which its next release need not do: "
    "link libstdc++ before Torch, or build with a portable toolchain"
)
_HINT = (
    "compile the source that defines it (is it listed in `src`?), or link the library that has it"
)


@CHECKS.add
class Undefined(Check):
    """Undefined dynamic symbols without a version, outside the known families."""

    name = "undefined"
    summary = "Every undefined symbol is a library's, Torch's, Python's or the backend's."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Linux variants with libraries."""
        return output.system is not None and output.system.os == "linux" and has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library, with its names."""
        if output.variant is None:
            return
        libraries = list(elf_libraries(output))
        own = {symbol.name for _, elf in libraries for symbol in elf.exported}
        for where, elf in libraries:
            unknown = {name for name in _unversioned(elf) if not _is_known(name, output.variant)}
            borrowed = sorted(name for name in unknown - own if is_standard(name))
            lost = sorted(unknown - own - set(borrowed))
            if lost:
                what = f"nobody is known to define {some(lost)}"
                severity, users = _severity(elf, output.variant), objects_of(output).users(lost)
                yield Finding(self.name, severity, where, what, _HINT, tuple(lost), users)
            if borrowed:
                what = f"takes the C++ library's {some(borrowed)} from whoever exports it"
                users = objects_of(output).users(borrowed)
                names = tuple(borrowed)
                yield Finding(self.name, "warning", where, what, _BORROWED_HINT, names, users)


def _unversioned(elf: ElfFile) -> Iterator[str]:
    """Weak ones may stay without a definition."""
    symbols = (symbol for symbol in elf.undefined if symbol.binding != "STB_WEAK")
    return (symbol.name for symbol in symbols if not symbol.version)


def _is_known(name: str, variant: Variant) -> bool:
    names, namespaces = _families(variant.framework, variant.backend)
    begin = entity(name)
    if begin is not None:
        return begin.startswith(namespaces)
    return matches(name, names)


@lru_cache(maxsize=16)
def _families(framework: str, backend: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns of C names, and beginnings of C++ names."""
    data = load("symbols")
    parts = [data["frameworks"].get(framework, {}), data["backends"].get(backend, {})]
    names = [*data["python"], *(name for part in parts for name in part.get("names", ()))]
    namespaces = [space for part in parts for space in part.get("namespaces", ())]
    return tuple(names), tuple(namespaces)


def _severity(elf: ElfFile, variant: Variant) -> Severity:
    """A needed library whose names are not known here may be the one that defines them."""
    known, opaque = allowed_libraries(variant), tuple(load("symbols")["opaque"])
    sure = all(matches(name, known) and not matches(name, opaque) for name in elf.needed)
    return "error" if sure else "warning"
