"""Two kernels in one process do not share state by accident."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import elf_libraries, first_names


@CHECKS.add
class UniqueCheck(LibraryCheck):
    """An STB_GNU_UNIQUE symbol binds to the first definition that the process ever saw."""

    name = "unique"
    summary = "No process-wide unique symbols (STB_GNU_UNIQUE) are exported."

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file."""
        for where, elf in elf_libraries(output):
            names = sorted(symbol.name for symbol in elf.exported if symbol.unique)
            if names:
                what = (
                    f"exports {first_names(names)} as unique in the whole process (STB_GNU_UNIQUE)"
                )
                hint = "compile with `-fno-gnu-unique` and `-fvisibility=hidden`"
                yield Finding(self.name, "warning", where, what, hint)
