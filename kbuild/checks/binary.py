"""Every shared library can be read, and is made for the variant's CPU and system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.readers.elf import UnreadableBinaryError, is_elf, read_elf
from kbuild.checks.readers.macho import is_macho, read_macho


@CHECKS.add
class BinaryCheck(LibraryCheck):
    """Reports files that cannot be read, because nothing is known about them."""

    name = "binary"
    summary = "Shared libraries are readable and made for the variant's CPU and system."
    protects = True

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library that is damaged or made for something else."""
        for path in output.libraries():
            yield from self._findings(output, path)

    def _findings(self, output: Output, path: Path) -> Iterator[Finding]:
        where, system = output.name_of(path), output.system
        if system is not None and system.os not in {kind.os for kind in KINDS}:
            what = f"not checked: kbuild reads no libraries for {system.os}"
            yield Finding(self.name, "warning", where, what)
            return
        kind = next((kind for kind in KINDS if kind.fits(path)), None)
        if kind is None or (system and system.os != kind.os):
            wanted = next((k.name for k in KINDS if system and k.os == system.os), "ELF")
            what = f"not {wanted}" + (f" but {kind.name}" if kind else "")
            yield Finding(self.name, "error", where, f"{what} file", "rebuild the variant")
            return
        try:
            cpus, shared = kind.look(path)
        except UnreadableBinaryError as error:
            yield Finding(self.name, "error", where, str(error), kind.hint)
            return
        if system and system.cpu not in cpus:
            what = f"made for {', '.join(cpus)}, but the variant is for {system}"
            yield Finding(self.name, "error", where, what, "build with that CPU's compiler")
        if not shared:
            yield Finding(self.name, "error", where, "not a shared library", kind.link)


@dataclass(frozen=True)
class BinaryFormat:
    """A file format of shared libraries."""

    name: str
    os: str
    fits: Callable[[Path], bool]
    look: Callable[[Path], tuple[tuple[str, ...], bool]]
    """CPUs that the file is made for, and whether it is a shared library."""
    link: str
    hint: str = "rebuild the variant"


def _elf(path: Path) -> tuple[tuple[str, ...], bool]:
    elf = read_elf(path)
    return (elf.cpu,), elf.shared


def _macho(path: Path) -> tuple[tuple[str, ...], bool]:
    slices = read_macho(path)
    return tuple(part.cpu for part in slices), all(part.shared for part in slices)


_STRIP = "strip with `strip --strip-unneeded`, which keeps what the dynamic linker reads"
KINDS = (
    BinaryFormat("an ELF", "linux", is_elf, _elf, "link it with `-shared`", _STRIP),
    BinaryFormat("a Mach-O", "darwin", is_macho, _macho, "link it with `-bundle` or `-dynamiclib`"),
)
