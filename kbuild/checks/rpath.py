"""A kernel finds its libraries in the process that loads it, and asks for nothing unusual."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import elf_libraries, first_names
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.object_files import object_symbols


@CHECKS.add
class RpathCheck(LibraryCheck):
    """Torch has loaded everything a kernel needs; a path would name a folder of the build."""

    name = "rpath"
    summary = "No RPATH or RUNPATH, no text relocations, no executable stack."

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per fault and file."""
        for where, elf in elf_libraries(output):
            for what, hint in _faults(elf):
                yield Finding(self.name, "error", where, what, hint)
            if elf.text_relocations:
                yield self._text_relocations(where, elf, output)
            if not elf.relro:
                hint = "link with `-Wl,-z,relro,-z,now`"
                missing = "PT_GNU_RELRO" if elf.bind_now else "PT_GNU_RELRO, no BIND_NOW"
                what = f"its tables of addresses stay writable (no {missing})"
                yield Finding(self.name, "info", where, what, hint)

    def _text_relocations(self, where: str, elf: ElfFile, output: Output) -> Finding:
        names = sorted({_holder(address, elf) for address in elf.written_code} - {""})
        what = "has text relocations (DT_TEXTREL)"
        if names:
            what += f" in {first_names(names)}"
        makers = object_symbols(output.object_tree).makers(names)
        hint = "compile every unit with `-fPIC`"
        return Finding(self.name, "error", where, what, hint, tuple(names), makers)


def _holder(address: int, elf: ElfFile) -> str:
    """The exported symbol that the address is in; empty when it is in none."""
    inside = (s for s in elf.exported if s.address <= address < s.address + s.size)
    return next((symbol.name for symbol in inside), "")


def _faults(elf: ElfFile) -> Iterator[tuple[str, str]]:
    for tag, value in elf.search_paths:
        yield (
            f"{tag} is `{value}`",
            "set `CMAKE_SKIP_RPATH` to ON, and drop `-Wl,-rpath` from the link flags",
        )
    if elf.executable_stack:
        yield (
            "asks for an executable stack (PT_GNU_STACK)",
            "link with `-Wl,-z,noexecstack`; assembly needs a `.note.GNU-stack` section",
        )
