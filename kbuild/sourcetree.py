"""A project's files as kbuild looks at them, remembering every look.

What a verdict or a plan depends on is exactly what was looked at. `observed` says so, and
`unchanged` tells later, with one `stat` per path, whether looking again would show the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

Look = tuple[int, int] | None
"""(size, mtime in ns) of a file, (-1, mtime) of a folder whose entries matter, None when absent."""


def look(path: Path | str) -> Look:
    """What a path is right now."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return (-1, status.st_mtime_ns)
    return (status.st_size, status.st_mtime_ns)


def unchanged(root: Path, observed: Mapping[str, Look]) -> bool:
    """True when every path still looks as it did; absolute paths are taken as they are."""
    return all(look(os.path.join(root, path)) == then for path, then in observed.items())


class SourceTree:
    """Read-only view of one project's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.observed: dict[str, Look] = {}

    def _observe(self, path: str) -> Path:
        full = self.root / path
        self.observed.setdefault(path, look(full))
        return full

    def is_file(self, path: str) -> bool:
        """True when `path` (relative to the project) is a file."""
        return self._observe(path).is_file()

    def is_dir(self, path: str) -> bool:
        """True when `path` is a folder."""
        return self._observe(path).is_dir()

    def read_bytes(self, path: str) -> bytes:
        """The file's bytes."""
        return self._observe(path).read_bytes()

    def read_text(self, path: str) -> str:
        """The file's text as UTF-8; undecodable bytes are replaced."""
        return self.read_bytes(path).decode("utf-8", errors="replace")

    def is_inside(self, path: str) -> bool:
        """True when `path`, with symbolic links resolved, stays below the project's root."""
        return (self.root / path).resolve().is_relative_to(self.root.resolve())

    def walk(self, folder: str, *, skip: Iterable[str] = ()) -> tuple[str, ...]:
        """Files below `folder` as sorted POSIX paths relative to the project.

        Folders named in `skip`, hidden folders and bytecode are left out.
        """
        skipped = {"__pycache__", *skip}
        found: list[str] = []
        for base, folders, files in os.walk(self.root / folder):
            relative = PurePosixPath(os.path.relpath(base, self.root).replace(os.sep, "/"))
            self._observe(str(relative))
            folders[:] = sorted(
                name for name in folders if name not in skipped and not name.startswith(".")
            )
            found.extend(str(relative / name) for name in files if not name.endswith(".pyc"))
        return tuple(sorted(found))
