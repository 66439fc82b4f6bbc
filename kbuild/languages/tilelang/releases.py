"""What each release of TileLang needs and compiles for; facts in `releases.toml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.languages.pins import pinned_version, with_companions

DISTRIBUTION = "tilelang"
_FILE = Path(__file__).with_name("releases.toml")
_FORM = r"\d+(?:\.\d+)*(?:\.post\d+)?"


@dataclass(frozen=True)
class Release:
    """One release."""

    version: str
    archs: tuple[str, ...]
    """Capabilities: `8.0`, `9.0a`."""
    rocm: tuple[str, ...]
    """AMD's archs: `gfx942`."""
    cpu: bool
    """Whether a C++ compiler takes its code for the CPU."""
    cuda: str
    """Release of CUDA whose nvcc compiles: `13.0`."""
    pins: tuple[str, ...]
    """The other distributions of its environment."""

    def environment(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Every distribution of the environment, the DSL first.

        Args:
            pins: of the section; they take the place of the facts' own.
        """
        return with_companions(DISTRIBUTION, pins, self.pins)


def version_of(pins: Sequence[str]) -> str | None:
    """The exact release that is pinned."""
    return pinned_version(DISTRIBUTION, pins, _FORM)


def known_releases() -> tuple[str, ...]:
    """Versions, the oldest first."""
    return tuple(_rows())


def release_of(version: str) -> Release:
    """The facts of a known release.

    Raises:
        KeyError: nothing is known of it.
    """
    row = _rows()[version]
    return Release(
        version,
        tuple(row["archs"]),
        tuple(row["rocm"]),
        row["cpu"],
        row["cuda"],
        tuple(row["pins"]),
    )


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    import tomli

    facts = tomli.loads(_FILE.read_text("utf-8"))
    return {row["version"]: row for row in facts["release"]}
