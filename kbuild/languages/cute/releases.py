"""What each release of nvidia-cutlass-dsl needs and compiles for; facts in `releases.toml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.languages.pins import pinned_version, with_companions
from kbuild.version import Version

DISTRIBUTION = "nvidia-cutlass-dsl"
OLDEST = Version.parse("4.5")
"""Releases before it start the driver when they compile."""
_FILE = Path(__file__).with_name("releases.toml")
_FORM = r"\d+\.\d+\.\d+"


@dataclass(frozen=True)
class Release:
    """One release."""

    version: str
    facts: Mapping[str, Any]

    @property
    def archs(self) -> tuple[str, ...]:
        """Capabilities: `8.0`, `9.0a`."""
        return tuple(self.facts["archs"])

    def environment(self, pins: Sequence[str], flavour: str) -> tuple[str, ...]:
        """Every distribution of the environment, the DSL first.

        Args:
            pins: of the section; they take the place of the facts' own.
            flavour: `cuda12` or `cuda13`.
        """
        rows = [*self.facts["pins"], *self.facts.get(flavour, ())]
        companions = (row.format(version=self.version) for row in rows)
        return with_companions(DISTRIBUTION, pins, companions)

    def runtime(self, root: Path, flavour: str) -> Path:
        """The static runtime in an environment."""
        path: str = self.facts["runtime"]
        return root / path.format(major=flavour.removeprefix("cuda"))


def version_of(pins: Sequence[str]) -> str | None:
    """The exact release that is pinned."""
    return pinned_version(DISTRIBUTION, pins, _FORM)


def release_of(version: str) -> Release:
    """The facts that hold for a version: those of the newest release up to it."""
    wanted, rows = Version.parse(version), _facts()["release"]
    known = [row for row in rows if Version.parse(row["since"]) <= wanted]
    return Release(version, known[-1] if known else rows[0])


@cache
def _facts() -> Mapping[str, Any]:
    import tomli

    facts: Mapping[str, Any] = tomli.loads(_FILE.read_text("utf-8"))
    return facts
