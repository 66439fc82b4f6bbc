"""The C++ compiler, and whether its results can be made to run on older systems."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from kbuild.diagnosis.distribution import Distribution
from kbuild.diagnosis.item import Item, major, version_of
from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import find_cxx
from kbuild.toolchains.manylinux import DEFAULT_POLICY, OLDEST_ASSEMBLER, Needs, link_needs

OLDEST_GCC = 11
_CXX, _LINKS = "C++ compiler", "portable links"
_GLIBC_ONLY = "set CXX to a compiler for glibc"


@dataclass(frozen=True)
class Compilers:
    """What is asked, and of whom."""

    cache: FactCache
    runner: Runner
    distribution: Distribution

    def items(self) -> tuple[Item, ...]:
        """The compiler; on Linux, its links too."""
        try:
            program = find_cxx()
        except ToolchainError:
            program = None
        links = (self._links(program),) if sys.platform == "linux" else ()
        return (self._compiler(program), *links)

    def _compiler(self, program: Path | None) -> Item:
        purpose, mend = "compiling kernels", self.distribution.install("cxx")
        if program is None:
            return Item(_CXX, "missing", "", purpose, mend)
        version = version_of(program, self.runner)
        found, release = f"{version} {program}", major(version)
        is_gcc = "clang" not in program.name and "clang" not in str(program.resolve())
        if is_gcc and sys.platform == "linux" and release is not None and release < OLDEST_GCC:
            words = f"{found}: too old, {OLDEST_GCC} is the oldest that does"
            return Item(_CXX, "missing", words, purpose, mend)
        return Item(_CXX, "ok", found, purpose)

    def _links(self, program: Path | None) -> Item:
        """Without them builds work, and their results need a system as new as this one."""
        if program is None:
            return self._no_links("", self.distribution.install("cxx"))
        needs = link_needs(program, self.cache, self.runner)
        if needs.glibc is None:
            return self._no_links(f"`{program}` is not for glibc", _GLIBC_ONLY)
        glibc = f"glibc {'.'.join(map(str, needs.glibc))}"
        if needs.is_old_enough(DEFAULT_POLICY):
            return Item(_LINKS, "ok", f"{glibc}, as old as {DEFAULT_POLICY}'s", _purpose())
        return self._lacking(needs) or Item(
            _LINKS, "ok", f"{needs.libstdcxx} assembler {needs.assembler} {glibc}", _purpose()
        )

    def _lacking(self, needs: Needs) -> Item | None:
        if needs.libstdcxx is None:
            mend = self.distribution.install("static-cxx", gcc=needs.gcc)
            return self._no_links("no libstdc++.a", mend)
        if needs.assembler is not None and needs.assembler < OLDEST_ASSEMBLER:
            found = f"assembler {needs.assembler}: too old, {OLDEST_ASSEMBLER} is the oldest"
            return self._no_links(found, self.distribution.install("assembler"))
        return None

    def _no_links(self, found: str, mend: str) -> Item:
        return Item(_LINKS, "optional", found, _purpose(), mend)


def _purpose() -> str:
    return f"results for {DEFAULT_POLICY} and newer systems"
