"""Whatever a library takes from elsewhere has somebody to give it.

A shared library may be linked with names that nobody defines; the loader finds out, on the user's
machine. A versioned name is safe: the linker saw its library. The others must be known families of
Torch, Python or the backend's runtime (`data/symbols.json`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.libraries import elf_libraries, has_libraries, some
from kbuild.checks.readers.policies import allowed_libraries, load, matches
from kbuild.variant import Variant

# Itanium C++ ABI, 5.1: what a special name is of (`TV`: virtual table, `Th`: thunk, `Z`: local to a
# function), then `N` and the qualifiers of a nested name.
_ENTITY = re.compile(
    r"_Z(?:T[VTISHW]|Th[n\d]+_|Tv[n\d]+_[n\d]+_|GV|GR)?Z?(?:N[rVK]*[RO]?)?(?P<begin>.*)"
)
_STANDARD = re.compile(r"_Z(?:T[VTISHW]|GV|GR)?(?:N[rVK]*[RO]?)?(?:St|S[absiod])")
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
            borrowed = sorted(name for name in unknown - own if _STANDARD.match(name))
            lost = sorted(unknown - own - set(borrowed))
            if lost:
                what = f"nobody is known to define {some(lost)}"
                yield Finding(self.name, _severity(elf, output.variant), where, what, _HINT)
            if borrowed:
                what = f"takes the C++ library's {some(borrowed)} from whoever exports it"
                yield Finding(self.name, "warning", where, what, _BORROWED_HINT)


def _unversioned(elf: ElfFile) -> Iterator[str]:
    """Weak ones may stay without a definition."""
    symbols = (symbol for symbol in elf.undefined if symbol.binding != "STB_WEAK")
    return (symbol.name for symbol in symbols if not symbol.version)


def _is_known(name: str, variant: Variant) -> bool:
    names, namespaces = _families(variant.framework, variant.backend)
    entity = _ENTITY.fullmatch(name)
    if entity is not None:
        return entity["begin"].startswith(namespaces)
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
