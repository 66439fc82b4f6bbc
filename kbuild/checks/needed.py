"""A kernel needs only what the system, Torch and the backend's runtime provide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import elf_libraries, first_names
from kbuild.checks.policies import (
    allowed_libraries,
    backends_of_library,
    is_exported_by_torch,
    load_data,
    matches_any,
    openmp_versions,
    torch_releases_text,
)
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.object_files import object_symbols
from kbuild.checks.readers.symbols import scope_part
from kbuild.project.variant import Variant

_OPENMP = "libgomp.so.1"
_LINK = "link that library, before which put `-Wl,--no-as-needed`"


@CHECKS.add
class NeededCheck(LibraryCheck):
    """DT_NEEDED against the lists in `data/libraries.json`, and against the symbols taken."""

    name = "needed"
    summary = (
        "Needed libraries are the system's, Torch's, or the backend's runtime; none is missing."
    )
    os = "linux"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library that is not allowed, missing or not used."""
        own = tuple(path.name for path in output.libraries())
        allowed = allowed_libraries(output.variant) + own
        libraries = list(elf_libraries(output))
        offered = {symbol.name for _, elf in libraries for symbol in elf.exported}
        for where, elf in libraries:
            yield from self._refused(where, elf, allowed, output)
            yield from self._missing(where, elf, offered, output)
            # Torch's own copy is in the process first, and serves the kernel as well.
            brought = openmp_versions(output.variant) if output.variant else None
            asked = sorted(version for library, version in elf.version_needs if library == _OPENMP)
            newer = [version for version in asked if brought is not None and version not in brought]
            if newer and output.variant:
                names = sorted(s.name for s in elf.undefined if s.version in newer)
                reason = f" for {first_names(names)}" if names else ""
                what = (
                    f"needs {' and '.join(newer)} of `{_OPENMP}`{reason}, which the one in the "
                    f"wheel of {torch_releases_text(output.variant)} does not have"
                )
                hint = "avoid these functions, or compile them with an older compiler"
                users = object_symbols(output.object_tree).users(names)
                yield Finding(self.name, "error", where, what, hint, tuple(names), users)
            yield from self._unused(where, elf)

    def _refused(
        self, where: str, elf: ElfFile, allowed: tuple[str, ...], output: Output
    ) -> Iterator[Finding]:
        for library in elf.needed:
            if not matches_any(library, allowed):
                what = f"needs `{library}`{_because(library, output.variant)}"
                yield Finding(self.name, "error", where, what, _hint(library))

    def _missing(
        self, where: str, elf: ElfFile, offered: set[str], output: Output
    ) -> Iterator[Finding]:
        """Torch's libraries are loaded without offering their names to later ones."""
        free = {
            s.name for s in elf.undefined if not s.version and s.binding != "STB_WEAK"
        } - offered
        for provider in load_data("symbols")["providers"]:
            wanted = tuple(provider["libraries"])
            if any(matches_any(library, wanted) for library in elf.needed):
                continue
            names = sorted(name for name in free if _is_of(name, provider, output.variant))
            if names:
                brings = " or ".join(f"`{library}`" for library in wanted)
                what = (
                    f"takes {first_names(names)} from {provider['of']}, but does not need {brings}"
                )
                hint = provider.get("hint", _LINK)
                severity = provider.get("severity", "error")
                users = object_symbols(output.object_tree).users(names)
                yield Finding(self.name, severity, where, what, hint, tuple(names), users)

    def _unused(self, where: str, elf: ElfFile) -> Iterator[Finding]:
        asked = {library for library, _ in elf.version_needs}
        idle = sorted(set(elf.needed) & set(load_data("symbols")["unused"]) - asked)
        if idle:
            what = f"needs {first_names(idle)} without taking a symbol from it"
            yield Finding(self.name, "info", where, what, "link with `-Wl,--as-needed`")


def _is_of(name: str, provider: Mapping[str, Any], variant: Variant | None) -> bool:
    begin = scope_part(name)
    if begin is not None:
        return begin.startswith(tuple(provider["namespaces"]))
    if matches_any(name, tuple(provider["names"])):
        return True
    is_exported = "exports" in provider and variant is not None and not _is_others(name, variant)
    return is_exported and variant is not None and is_exported_by_torch(name, variant) is True


def _is_others(name: str, variant: Variant) -> bool:
    """True for names that Python or the backend's runtime bring, whoever exports them as well."""
    data = load_data("symbols")
    others = [*data["python"], *data["backends"].get(variant.backend, {}).get("names", ())]
    return matches_any(name, tuple(others))


def _because(library: str, variant: Variant | None) -> str:
    backends = backends_of_library(library)
    if variant is None:
        return ", which neither the system nor Torch nor a backend provides"
    if variant.backend in backends:
        return f", which does not belong to {variant.backend} {variant.backend_version}"
    if backends:
        return f", which is of {', '.join(backends)}, but this variant is for {variant.backend}"
    return ", which neither the system nor Torch provides"


def _hint(library: str) -> str:
    if library.startswith("libpython"):
        return "an extension takes Python's symbols from the process: drop the `-lpython` link flag"
    if library.startswith("libgomp-"):
        return "that is one Torch wheel's own copy: link the toolchain's `libgomp.so.1`"
    if library.startswith("libc++"):
        return "compile and link with libstdc++, which Torch uses (drop `-stdlib=libc++`)"
    if library.startswith("libtorch_python"):
        return "register ops with TORCH_LIBRARY and pybind-free bindings, and drop the link"
    return "link it statically, or remove it from the link line"
