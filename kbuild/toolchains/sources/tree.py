"""A source tree on disk: whether it is what was asked for, and what its headers are."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.toolchains.sources.pins import Check, Pin


@dataclass(frozen=True)
class HeaderSource:
    """The headers of one dependency that a build uses."""

    name: str
    """As `depends` writes it."""
    version: str
    include_dirs: tuple[Path, ...]
    origin: str
    """Where the headers came from, with what identifies them, in words."""
    digest: str
    """Of the content: of the wheel, the commit, or the files; empty before a clone is made."""

    @property
    def fact(self) -> str:
        """The CMake cache entry that generated projects read."""
        return f"KBUILD_{re.sub('[^A-Za-z0-9_]', '_', self.name).upper()}_INCLUDE_DIRS"


def source_of(pin: Pin, root: Path, origin: str, digest: str) -> HeaderSource:
    """The headers of a tree that is, or will be, at `root`."""
    folders = tuple(root / folder for folder in pin.library.include)
    return HeaderSource(pin.name, pin.version, folders, origin, digest)


def fault(pin: Pin, root: Path) -> str | None:
    """Why a folder is not the tree that was asked for; None when it is."""
    if not root.is_dir():
        return "is a file" if root.exists() else "does not exist"
    missing = [name for name in (*pin.check.files, *pin.library.include) if not exists(root, name)]
    if missing:
        return f"has no `{missing[0]}`, so it is no {pin.library.title} source tree"
    found = version_of(pin.check, root)
    if pin.check.macros and found != pin.version:
        return f"is {pin.library.title} {found or 'of no known release'}, not {pin.version}"
    return None


def exists(root: Path, name: str) -> bool:
    """True for a file or folder below `root`."""
    return (root / name).exists()


def version_of(check: Check, root: Path) -> str | None:
    """The release that the tree's version macros make; None when there are none."""
    try:
        text = (root / (check.version_file or "")).read_text("utf-8", "replace")
    except OSError:
        return None
    found = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\d+)", text, re.MULTILINE))
    values = [found.get(macro) for macro in check.macros]
    return ".".join(value for value in values if value) if all(values) else None


def digest_of(folders: tuple[Path, ...]) -> str:
    """SHA-256 over the paths and contents of every file in the folders."""
    whole = hashlib.sha256()
    for folder in folders:
        for path in _files(folder):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            whole.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
        whole.update(b"\0")
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (path for name in sorted(files) if (path := Path(base, name)).is_file())
