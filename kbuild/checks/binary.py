"""Every shared library can be read, and is made for the variant's CPU and system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.elf import UnreadableBinaryError, is_elf, read_elf
from kbuild.checks.readers.libraries import has_libraries

MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


@CHECKS.add
class Binary(Check):
    """What cannot be read is not proven, so it is said."""

    name = "binary"
    summary = "Shared libraries are readable and made for the variant's CPU and system."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Only where there are libraries."""
        return has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library that is damaged or made for something else."""
        for path in output.libraries():
            yield from self._findings(output, path)

    def _findings(self, output: Output, path: Path) -> Iterator[Finding]:
        where = output.name_of(path)
        system = output.system
        if not is_elf(path):
            yield self._not_elf(where, on_linux=system is None or system.os == "linux")
            return
        try:
            elf = read_elf(path)
        except UnreadableBinaryError as error:
            hint = "strip with `strip --strip-unneeded`, which keeps what the dynamic linker reads"
            yield Finding(self.name, "error", where, str(error), hint)
            return
        if system and elf.machine != MACHINES[system.cpu]:
            what = f"made for {elf.machine}, but the variant is for {system}"
            yield Finding(self.name, "error", where, what, "build with that CPU's compiler")
        if not elf.shared:
            hint = "link it with `-shared`"
            yield Finding(self.name, "error", where, "not a shared library", hint)

    def _not_elf(self, where: str, *, on_linux: bool) -> Finding:
        if on_linux:
            return Finding(self.name, "error", where, "not an ELF file", "rebuild the variant")
        what = "not checked: only ELF files are looked into so far"
        return Finding(self.name, "info", where, what)
