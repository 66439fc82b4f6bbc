"""What is known of each header dependency: release, repository, wheel, and how to recognise it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from kbuild.config.curated import Library, libraries
from kbuild.errors import ToolchainError
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.version import Version


@dataclass(frozen=True)
class Check:
    """How a source tree is recognised."""

    files: tuple[str, ...]
    version_file: str | None = None
    macros: tuple[str, ...] = ()
    """Macros of `version_file` whose values make the release."""


@dataclass(frozen=True)
class PinnedWheel:
    """A wheel with a source tree in it."""

    locked: LockedWheel
    root: str
    """POSIX path of the tree in the wheel."""


@dataclass(frozen=True)
class Pin:
    """One dependency in one release."""

    library: Library
    version: str
    check: Check
    wheel: PinnedWheel | None = None

    @property
    def name(self) -> str:
        """As `depends` writes it."""
        return self.library.name

    @property
    def title(self) -> str:
        """For people: `CUTLASS 3.8.0`."""
        return f"{self.library.title} {self.version}"

    @property
    def tag(self) -> str:
        """The git tag of the release."""
        return self.library.tag or f"v{self.version}"


def pin_of(name: str, compiler: Version | None = None) -> Pin:
    """What `depends` means by a name.

    Args:
        name: such as `cutlass_3_9`.
        compiler: release of the device compiler, on which some releases depend.

    Raises:
        ToolchainError: there is no such dependency, or no release for that compiler.
    """
    library = libraries().get(name)
    check = _checks().get(library.title) if library else None
    if library is None or check is None:
        raise ToolchainError(f"`{name}` is no header dependency that kbuild knows")
    version = library.version_for(compiler)
    if version is None:
        known = ", ".join(library.versions)
        raise ToolchainError(
            f"no release of {library.title} is known for compiler {compiler or 'of no version'}",
            hint=f"{name} has releases for compilers from {known} on",
        )
    return Pin(library, version, check, _wheels().get((name, version)))


def header_names() -> tuple[str, ...]:
    """Every dependency whose headers kbuild can look for."""
    return tuple(name for name, library in libraries().items() if library.title in _checks())


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return tomli.loads(Path(__file__).with_name("pins.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _checks() -> dict[str, Check]:
    return {
        title: Check(
            tuple(facts["files"]), facts.get("version-file"), tuple(facts.get("macros", ()))
        )
        for title, facts in _data()["check"].items()
    }


@lru_cache(maxsize=1)
def _wheels() -> dict[tuple[str, str], PinnedWheel]:
    return {
        (name, version): PinnedWheel(LockedWheel(**facts), root)
        for name, releases in _data()["wheels"].items()
        for version, (facts, root) in _split(releases).items()
    }


def _split(releases: dict[str, dict[str, Any]]) -> dict[str, tuple[dict[str, Any], str]]:
    return {
        version: ({key: value for key, value in facts.items() if key != "root"}, facts["root"])
        for version, facts in releases.items()
    }
