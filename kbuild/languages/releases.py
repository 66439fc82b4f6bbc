"""What each release of Triton compiles for, and with which assembler; facts in `releases.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.languages.target import Target
from kbuild.version import Version

_FILE = Path(__file__).with_name("releases.toml")
_NEW = (9, 0)
"""The first capability that is assembled by the second of the assemblers."""


@dataclass(frozen=True)
class Release:
    """One release, `major.minor`, or a later one that nothing else is known of."""

    version: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return f"Triton {self.version}"

    def archs(self, flavour: str) -> tuple[str, ...]:
        """Capabilities or gfx names."""
        return tuple(self.facts[flavour])

    def assemblers(self, flavour: str) -> tuple[str, ...]:
        """Names of the ptxas for archs below 9.0, and of that from 9.0 on; none for AMD."""
        return tuple(self.facts["assemblers"].get(flavour, ()))

    def assembler(self, flavour: str, target: Target) -> str | None:
        """Name of the ptxas for one target."""
        names, capability = self.assemblers(flavour), target.capability
        if not names or capability is None:
            return None
        return names[capability.base >= _NEW]


@cache
def release_of(version: str) -> Release:
    """The facts that hold for a version `3.9.0`: those of the newest release up to it."""
    wanted = Version.parse(version)
    rows = _facts()["release"]
    known = [row for row in rows if Version.parse(row["since"]) <= wanted]
    return Release(version, known[-1] if known else rows[0])


def most_shared(target: Target) -> int:
    """Bytes of shared memory that a block can have there."""
    limits: Mapping[str, int] = _facts()["shared"]
    capability = target.capability
    if capability is None:
        return limits.get(target.arch, limits["gfx"])
    number = f"{capability.major}.{capability.minor}"
    return limits.get(number, max(limits.values()))


@cache
def _facts() -> Mapping[str, Any]:
    import tomli

    facts: Mapping[str, Any] = tomli.loads(_FILE.read_text("utf-8"))
    return facts
