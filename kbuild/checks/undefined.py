"""Whatever a library takes from elsewhere has somebody to give it.

A shared library may be linked with names that nobody defines; the loader finds out on the user's
machine. Names without a version must be exported by Torch (`data/torch_exports*.json`), or be of
known families of Torch, Python or the backend's runtime (`data/symbols.json`).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output, Severity
from kbuild.checks.libraries import elf_libraries, first_names
from kbuild.checks.policies import (
    allowed_libraries,
    is_exported_by_torch,
    load_data,
    matches_any,
    torch_releases_text,
)
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.object_files import ObjectSymbols, object_symbols
from kbuild.checks.readers.symbols import demangle, is_std_symbol, scope_part
from kbuild.project.variant import Variant

_BORROWED_HINT = (
    "Torch exports parts of its own libstdc++, which its next release need not do: "
    "link libstdc++ before Torch, or build with a portable toolchain"
)
_HINT = (
    "compile the source that defines it (is it listed in `src`?), or link the library that has it"
)

_ABSENT_HINT = (
    "compile the source that defines it (is it listed in `src`?), or avoid it: Torch's headers "
    "declare more than its libraries export"
)


@CHECKS.add
class UndefinedCheck(LibraryCheck):
    """Undefined dynamic symbols without a version, outside the known families."""

    name = "undefined"
    is_certain = True
    summary = "A library, Torch, Python or the backend provides every undefined symbol."

    def applies(self, output: Output) -> bool:
        """Linux variants with libraries."""
        return output.system is not None and output.system.os == "linux" and super().applies(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library, with its names."""
        if output.variant is None:
            return
        libraries = list(elf_libraries(output))
        own = {symbol.name for _, elf in libraries for symbol in elf.exported}
        for where, elf in libraries:
            # Weak ones may stay without a definition.
            strong = (symbol for symbol in elf.undefined if symbol.binding != "STB_WEAK")
            unversioned = {symbol.name for symbol in strong if not symbol.version}
            yield from self._absent(where, sorted(unversioned - own), output, output.variant)
            unknown = {name for name in unversioned if not _is_known(name, output.variant)}
            borrowed = sorted(name for name in unknown - own if is_std_symbol(name))
            lost = sorted(unknown - own - set(borrowed))
            if lost:
                what = f"nobody defines {first_names([demangle(name) for name in lost])}"
                severity = _severity(elf, output.variant)
                objects = object_symbols(output.object_tree)
                hint = _near_miss(lost, objects) or _HINT
                yield Finding(
                    self.name, severity, where, what, hint, tuple(lost), objects.users(lost)
                )
            if borrowed:
                what = (
                    f"takes the C++ library's {first_names(borrowed)} from any library that "
                    "exports it"
                )
                users = object_symbols(output.object_tree).users(borrowed)
                names = tuple(borrowed)
                yield Finding(self.name, "warning", where, what, _BORROWED_HINT, names, users)

    def _absent(
        self, where: str, names: list[str], output: Output, variant: Variant
    ) -> Iterator[Finding]:
        """Names of Torch's own families that this Torch has not."""
        absent = [
            name
            for name in names
            if scope_part(name) is not None  # its C names may be a kernel's own, too
            and _is_of(name, variant.framework, "")
            and is_exported_by_torch(name, variant) is False
        ]
        if absent:
            releases = torch_releases_text(variant)
            named = first_names([demangle(name) for name in absent])
            what = f"takes {named} from Torch, but {releases} does not export it"
            users = object_symbols(output.object_tree).users(absent)
            yield Finding(self.name, "error", where, what, _ABSENT_HINT, tuple(absent), users)


def _near_miss(lost: list[str], objects: ObjectSymbols) -> str:
    """A definition in the project whose name is alike, which may be the one that is meant."""
    defined = {demangle(name): sources[0] for name, sources in sorted(objects.gives.items())}
    by_base: dict[str, list[str]] = {}
    for signature in defined:
        by_base.setdefault(_base_name(signature), []).append(signature)
    for signature in map(demangle, lost):
        base = _base_name(signature)
        for close in (base, *get_close_matches(base, by_base, 1)):
            if close in by_base:
                meant = by_base[close][0]
                return (
                    f"{defined[meant]} defines `{meant}`: declaration and definition have to agree"
                )
    return ""


def _base_name(signature: str) -> str:
    """`scale` of `ns::scale(float*, int)`."""
    return signature.replace("(anonymous namespace)", "").partition("(")[0].rpartition("::")[2]


def _is_known(name: str, variant: Variant) -> bool:
    """True for what the process has; `_absent` reports what Torch should have and has not."""
    if is_std_symbol(name):
        return False
    if _is_of(name, variant.framework, variant.backend):
        return True
    # The stable ABI has no C++.
    may_take = scope_part(name) is None or variant.framework == "torch"
    return may_take and is_exported_by_torch(name, variant) is True


def _is_of(name: str, framework: str, backend: str) -> bool:
    names, namespaces = _families(framework, backend)
    begin = scope_part(name)
    if begin is not None:
        return begin.startswith(namespaces)
    return matches_any(name, names)


@lru_cache(maxsize=16)
def _families(framework: str, backend: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns of C names, and beginnings of C++ names."""
    data = load_data("symbols")
    parts = [data["frameworks"].get(framework, {}), data["backends"].get(backend, {})]
    names = [*data["python"], *(name for part in parts for name in part.get("names", ()))]
    namespaces = [space for part in parts for space in part.get("namespaces", ())]
    return tuple(names), tuple(namespaces)


def _severity(elf: ElfFile, variant: Variant) -> Severity:
    """A needed library whose names are not known here may be the one that defines them."""
    known, opaque = allowed_libraries(variant), tuple(load_data("symbols")["opaque"])
    sure = all(matches_any(name, known) and not matches_any(name, opaque) for name in elf.needed)
    return "error" if sure else "warning"
