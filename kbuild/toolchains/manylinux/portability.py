"""Whether a host compiler's results can be promised to run on a policy's systems, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.manylinux.compiler import glibc_release, is_old_enough
from kbuild.toolchains.manylinux.environment import link_environment
from kbuild.toolchains.manylinux.symbols import DEFAULT_POLICY
from kbuild.variant import System


@dataclass(frozen=True)
class Portability:
    """What a toolchain adds for the sake of older systems."""

    promised: bool = False
    """True when a result that breaks the policy is kbuild's fault or the project's."""
    cache_entries: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    """Why it is not promised, where that is a pity."""


def portability(
    system: str | None, cxx: Path, cache: Path, runner: Runner, policy: str = DEFAULT_POLICY
) -> Portability:
    """The link environment where the host is newer than the policy, or why there is none."""
    target = System.parse(system) if system else None
    if target is None or target.os != "linux":
        return Portability()
    if is_old_enough(glibc_release(cxx, FactCache(cache), runner), policy):
        return Portability()
    try:
        links = link_environment(policy, target.cpu, cxx, cache, runner)
    except ToolchainError as error:
        mend = f"; to mend it, {error.hint}" if error.hint else ""
        return Portability(notes=(f"not linked for {policy}: {error.message}{mend}",))
    return Portability(True, links.cache_entries, links.versions)
