"""A kernel finds its libraries in the process that loads it, and asks for nothing unusual."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.libraries import elf_libraries, has_libraries


@CHECKS.add
class Rpath(Check):
    """Torch has loaded everything a kernel needs; a path would name a folder of the build."""

    name = "rpath"
    summary = "No RPATH or RUNPATH, no text relocations, no executable stack."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Only where there are libraries."""
        return has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per broken promise and file."""
        for where, elf in elf_libraries(output):
            for what, hint in _faults(elf):
                yield Finding(self.name, "error", where, what, hint)


def _faults(elf: ElfFile) -> Iterator[tuple[str, str]]:
    for tag, value in elf.search_paths:
        yield (
            f"{tag} is `{value}`",
            "set `CMAKE_SKIP_RPATH` to ON, and drop `-Wl,-rpath` from the link flags",
        )
    if elf.text_relocations:
        yield "has text relocations (DT_TEXTREL)", "compile every unit with `-fPIC`"
    if elf.executable_stack:
        yield (
            "asks for an executable stack (PT_GNU_STACK)",
            "link with `-Wl,-z,noexecstack`; assembly needs a `.note.GNU-stack` section",
        )
