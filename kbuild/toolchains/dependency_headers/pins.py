"""Pinned releases of header dependencies, and recognising their source trees."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from kbuild.project.config.dependencies import Library, libraries
from kbuild.system.errors import ToolchainError
from kbuild.system.version import Version
from kbuild.toolchains.wheels.lock import LockedWheel


@dataclass(frozen=True)
class SourceTreeMarkers:
    """Files by which a source tree is recognised."""

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
class PinnedLibrary:
    """One dependency in one release."""

    library: Library
    version: str
    check: SourceTreeMarkers
    wheel: PinnedWheel | None = None

    @property
    def name(self) -> str:
        """The name in `depends`."""
        return self.library.name

    @property
    def title(self) -> str:
        """The name for users: `CUTLASS 3.8.0`."""
        return f"{self.library.title} {self.version}"

    @property
    def tag(self) -> str:
        """The git tag of the release."""
        return self.library.tag or f"v{self.version}"


def pin_of(name: str, compiler: Version | None = None) -> PinnedLibrary:
    """The library that a name in `depends` means.

    Args:
        name: such as `cutlass_3_9`.
        compiler: release of the device compiler, on which some releases depend.

    Raises:
        ToolchainError: there is no such dependency, or no release for that compiler.
    """
    library = libraries().get(name)
    check = _tree_markers().get(library.title) if library else None
    if library is None or check is None:
        raise ToolchainError(f"`{name}` is not a header dependency that kbuild knows")
    version = library.version_for(compiler)
    if version is None:
        known = ", ".join(library.versions)
        raise ToolchainError(
            f"no release of {library.title} is known for compiler {compiler or 'of no version'}",
            hint=f"{name} has releases for compilers from {known} on",
        )
    return PinnedLibrary(library, version, check, _pinned_wheels().get((name, version)))


def header_dependency_names() -> tuple[str, ...]:
    """Every dependency whose headers kbuild can look for."""
    return tuple(name for name, library in libraries().items() if library.title in _tree_markers())


@lru_cache(maxsize=1)
def _pins_data() -> dict[str, Any]:
    return tomli.loads(Path(__file__).with_name("pins.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _tree_markers() -> dict[str, SourceTreeMarkers]:
    return {
        title: SourceTreeMarkers(
            tuple(facts["files"]), facts.get("version-file"), tuple(facts.get("macros", ()))
        )
        for title, facts in _pins_data()["check"].items()
    }


@lru_cache(maxsize=1)
def _pinned_wheels() -> dict[tuple[str, str], PinnedWheel]:
    return {
        (name, version): PinnedWheel(
            LockedWheel(**{key: value for key, value in facts.items() if key != "root"}),
            facts["root"],
        )
        for name, releases in _pins_data()["wheels"].items()
        for version, facts in releases.items()
    }


@dataclass(frozen=True)
class DependencyHeaders:
    """The headers of one dependency that a build uses."""

    name: str
    """Name in `depends`."""
    version: str
    include_dirs: tuple[Path, ...]
    origin: str
    """Origin of the headers, with what identifies them, as text."""
    digest: str
    """Digest of the wheel, the commit, or the files; empty before a clone is made."""

    @property
    def fact(self) -> str:
        """The CMake cache entry that generated projects read."""
        return f"KBUILD_{re.sub('[^A-Za-z0-9_]', '_', self.name).upper()}_INCLUDE_DIRS"


def dependency_headers(
    pin: PinnedLibrary, root: Path, origin: str, digest: str
) -> DependencyHeaders:
    """The headers of a tree that is, or will be, at `root`."""
    folders = tuple(root / folder for folder in pin.library.include)
    return DependencyHeaders(pin.name, pin.version, folders, origin, digest)


def tree_mismatch(pin: PinnedLibrary, root: Path) -> str | None:
    """The reason that a folder is not the tree that was asked for; None when it is."""
    if not root.is_dir():
        return "is a file" if root.exists() else "does not exist"
    missing = [
        name for name in (*pin.check.files, *pin.library.include) if not (root / name).exists()
    ]
    if missing:
        return f"has no `{missing[0]}`, so it is not a {pin.library.title} source tree"
    version = version_of_tree(pin.check, root)
    if pin.check.macros and version != pin.version:
        return f"is {pin.library.title} {version or 'of no known release'}, not {pin.version}"
    return None


def version_of_tree(check: SourceTreeMarkers, root: Path) -> str | None:
    """The release that the tree's version macros make; None when there are none."""
    try:
        text = (root / (check.version_file or "")).read_text("utf-8", "replace")
    except OSError:
        return None
    macros = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\d+)", text, re.MULTILINE))
    values = [macros.get(macro) for macro in check.macros]
    return ".".join(value for value in values if value) if all(values) else None


def digest_of_folders(folders: tuple[Path, ...]) -> str:
    """SHA-256 over the paths and contents of every file in the folders."""
    hasher = hashlib.sha256()
    for folder in folders:
        for path in _files(folder):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            hasher.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
        hasher.update(b"\0")
    return hasher.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (path for name in sorted(files) if (path := Path(base, name)).is_file())
