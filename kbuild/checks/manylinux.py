"""The extension loads on every distribution of a manylinux policy.

The ceilings are those of auditwheel's policies (`data/manylinux.json`), applied to the versions of
undefined dynamic symbols and to the file's version needs (PEP 600). Torch has no builds for musl.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output, Severity
from kbuild.checks.libraries import elf_libraries, first_names
from kbuild.checks.policies import Policy, find_policy, policies
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.object_files import object_symbols


@CHECKS.add
class ManylinuxCheck(LibraryCheck):
    """Warns for a build with the machine's own compiler, refuses when portability was promised."""

    name = "manylinux"
    summary = "Symbol versions stay within manylinux_2_28, or within the given policy."
    os = "linux"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file and version, with the symbols that ask for it."""
        policy = find_policy(output.limits.manylinux or "")
        for where, elf in elf_libraries(output):
            faults = list(self._faults(where, elf, policy, output))
            yield from faults
            if faults or output.variant is None or output.asked.manylinux:
                yield Finding(self.name, "info", where, _best_words(elf))

    def _faults(
        self, where: str, elf: ElfFile, policy: Policy, output: Output
    ) -> Iterator[Finding]:
        severity: Severity = "warning"
        if output.redistributable or output.asked.manylinux:
            severity = "error"
        if elf.cpu not in policy.versions:
            what = f"{policy.name} is not defined for {elf.cpu}"
            yield Finding(self.name, severity, where, what, "choose a policy that is")
            return
        faults = _too_new(elf, policy)
        objects = object_symbols(output.object_tree) if faults else None
        for version, symbols in sorted(faults.items()):
            what = f"{_subject(symbols)} {version}, {_ceiling(version, policy, elf.cpu)}"
            users = objects.users(symbols) if objects else ()
            hint = _hint(version, output)
            yield Finding(self.name, severity, where, what, hint, tuple(symbols), users)
        for library, symbols in sorted(_withheld(elf, policy).items()):
            what = f"{_subject(symbols)} a `{library}` that not all of {policy.name} has"
            hint = f"avoid it: build against the oldest `{library}` of the policy"
            yield Finding(self.name, severity, where, what, hint, tuple(symbols))


def best_policy(elf: ElfFile) -> str | None:
    """The oldest policy that the file satisfies, None when there is none for it."""
    return next(
        (
            policy.name
            for policy in policies()
            if elf.cpu in policy.versions
            and not _too_new(elf, policy)
            and not _withheld(elf, policy)
        ),
        None,
    )


def _best_words(elf: ElfFile) -> str:
    best = best_policy(elf)
    if best is None:
        return (
            f"satisfies no policy for {elf.cpu}: it loads only on systems like the one that "
            "built it"
        )
    return f"loads on {best} and newer"


def _too_new(elf: ElfFile, policy: Policy) -> dict[str, list[str]]:
    """Version -> the symbols that ask for it (none when only the file as a whole does)."""
    allowed = policy.versions[elf.cpu]
    symbols_by_version: dict[str, set[str]] = defaultdict(set)
    for _, version in elf.version_needs:
        if not _is_allowed(version, allowed):
            symbols_by_version[version] = set()
    if not symbols_by_version:
        return {}
    for symbol in elf.undefined:
        if symbol.version in symbols_by_version:
            symbols_by_version[symbol.version].add(symbol.name)
    return {version: sorted(names) for version, names in symbols_by_version.items()}


def _is_allowed(version: str, allowed: Mapping[str, list[str]]) -> bool:
    family, _, number = version.partition("_")
    # A policy limits its own libraries' versions; those of other libraries are not its concern.
    return family not in allowed or number in allowed[family]


def _withheld(elf: ElfFile, policy: Policy) -> dict[str, list[str]]:
    """Library -> its symbols that the policy's systems need not have."""
    symbols_by_library: dict[str, set[str]] = defaultdict(set)
    for symbol in elf.undefined:
        # A symbol without a version names no library: any needed one may have it.
        for library in (symbol.library,) if symbol.library else elf.needed:
            if symbol.name in policy.withheld.get(library, ()):
                symbols_by_library[library].add(symbol.name)
    return {library: sorted(names) for library, names in symbols_by_library.items()}


def _subject(symbols: list[str]) -> str:
    if not symbols:
        return "the file as a whole needs"
    return f"{first_names(symbols)} {'needs' if len(symbols) == 1 else 'need'}"


def _ceiling(version: str, policy: Policy, cpu: str) -> str:
    family = version.partition("_")[0]
    numbers = [number for number in policy.versions[cpu][family] if number[:1].isdigit()]
    if not numbers:
        return f"{policy.name} has no {family}"
    newest = max(numbers, key=lambda number: [int(part) for part in number.split(".")])
    return f"{policy.name} ends at {family}_{newest}"


def _hint(version: str, output: Output) -> str:
    if version == "GLIBC_ABI_DT_RELR":
        return "link with `-Wl,-z,nopack-relative-relocs`"
    if output.redistributable:
        return "the toolchain avoids such symbols: a library or flag of the project adds it"
    return "build with a portable toolchain: this one's libraries are newer than the policy"
