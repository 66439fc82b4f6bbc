"""A kernel needs only what the system, Torch and the backend's runtime bring."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.libraries import elf_libraries, has_libraries
from kbuild.checks.readers.policies import allowed_libraries, backends_of_library, matches
from kbuild.variant import Variant


@CHECKS.add
class Needed(Check):
    """DT_NEEDED against the lists in `data/libraries.json`."""

    name = "needed"
    summary = "Needed libraries are the system's, Torch's, or the backend's runtime."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Where there are libraries and it is known what they may need."""
        return output.variant is not None and has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library that is not allowed."""
        if output.variant is None:
            return
        own = tuple(path.name for path in output.libraries())
        allowed = allowed_libraries(output.variant) + own
        for where, elf in elf_libraries(output):
            for library in elf.needed:
                if not matches(library, allowed):
                    what = f"needs `{library}`{_because(library, output.variant)}"
                    yield Finding(self.name, "error", where, what, _hint(library))


def _because(library: str, variant: Variant) -> str:
    backends = backends_of_library(library)
    if variant.backend in backends:
        return f", which is not of {variant.backend} {variant.backend_version}"
    if backends:
        return f", which is of {', '.join(backends)}; this variant is for {variant.backend}"
    return ", which neither the system nor Torch brings"


def _hint(library: str) -> str:
    if library.startswith("libpython"):
        return "an extension takes Python's symbols from the process: drop the `-lpython` link flag"
    if library.startswith("libgomp-"):
        return "that is one Torch wheel's own copy: link the toolchain's `libgomp.so.1`"
    if library.startswith("libtorch_python"):
        return "register ops with TORCH_LIBRARY and pybind-free bindings, and drop the link"
    return "link it statically, or take it out of the link line"
