"""The extension loads on every distribution of the manylinux policy.

The ceilings are those of auditwheel's policy (`data/manylinux.json`), applied to the versions of
undefined dynamic symbols and to the file's version needs (PEP 600).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.libraries import elf_libraries, has_libraries, some
from kbuild.checks.readers.policies import symbol_versions


@CHECKS.add
class Manylinux(Check):
    """Warns for a build with the machine's own compiler, refuses when portability was promised."""

    name = "manylinux"
    summary = "Symbol versions stay below the ceilings of manylinux_2_28."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Linux variants with libraries."""
        return output.system is not None and output.system.os == "linux" and has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file and version, with the symbols that ask for it."""
        allowed = symbol_versions(output.system.cpu) if output.system else {}
        severity: Severity = "error" if output.redistributable else "warning"
        for where, elf in elf_libraries(output):
            for version, symbols in sorted(_too_new(elf, allowed).items()):
                what = f"{_subject(symbols)} {version}, {_ceiling(version, allowed)}"
                yield Finding(self.name, severity, where, what, _hint(version, output))


def _too_new(elf: ElfFile, allowed: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Version -> the symbols that ask for it (none when only the file as a whole does)."""
    found: dict[str, list[str]] = defaultdict(list)
    for _, version in elf.version_needs:
        if not _is_allowed(version, allowed):
            found[version] = []
    for symbol in elf.undefined:
        if not _is_allowed(symbol.version, allowed):
            found[symbol.version].append(symbol.name)
    return found


def _is_allowed(version: str, allowed: Mapping[str, list[str]]) -> bool:
    family, _, number = version.partition("_")
    return family not in allowed or number in allowed[family]


def _subject(symbols: list[str]) -> str:
    if not symbols:
        return "the file as a whole needs"
    return f"{some(sorted(symbols))} {'needs' if len(symbols) == 1 else 'need'}"


def _ceiling(version: str, allowed: Mapping[str, list[str]]) -> str:
    family = version.partition("_")[0]
    numbers = [number for number in allowed[family] if number[0].isdigit()]
    newest = max(numbers, key=lambda number: [int(part) for part in number.split(".")])
    return f"manylinux_2_28 ends at {family}_{newest}"


def _hint(version: str, output: Output) -> str:
    if version == "GLIBC_ABI_DT_RELR":
        return "link with `-Wl,-z,nopack-relative-relocs`"
    if output.redistributable:
        return (
            "the toolchain leaves such symbols out: a library or flag of the project brings it in"
        )
    return "build with a portable toolchain: this one's libraries are newer than the policy"
