"""Waits until files of a folder change: saves, renames, new and deleted files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

FileStamp = tuple[int, int, int]
"""Time of the last change (ns), size and inode; not the time of a new link to the file."""
_FOLDERS = {"__pycache__", "build", "node_modules"}
"""Folders of generated files, besides those whose names begin with a dot."""
_LEFTOVERS = ("*~", "*.swp", "*.swx", "*.swo", "*.tmp", "*.pyc", "4913", "#*#")
"""Patterns of files that editors and interpreters write beside others."""
_PAUSE_S = 0.1
_SETTLED_S = 0.02
"""An editor that replaces a file by another is done after so long without a change."""


class FolderWatcher:
    """Knows a state of the folder's files, and waits for another one.

    It looks ten times a second: events of the system do not come from network file systems.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._known = self._snapshot()

    def changes(self) -> tuple[str, ...]:
        """Files that differ from when this was last asked, relative to the folder, in order."""
        known, self._known = self._known, self._settled()
        paths = known.keys() | self._known.keys()
        return tuple(sorted(p for p in paths if known.get(p) != self._known.get(p)))

    def has_changed(self) -> bool:
        """True if `changes` would return something."""
        return self._snapshot() != self._known

    def wait(self) -> tuple[str, ...]:
        """The next changes, at least one."""
        while True:
            if changed := self.changes():
                return changed
            time.sleep(_PAUSE_S)

    def _settled(self) -> Mapping[str, FileStamp]:
        current = self._snapshot()
        # A save may take several steps (write beside, rename): wait for a state that lasts.
        while current != self._known:
            time.sleep(_SETTLED_S)
            before, current = current, self._snapshot()
            if before == current:
                break
        return current

    def _snapshot(self) -> Mapping[str, FileStamp]:
        return dict(_files(self._root, ""))


def _files(folder: str, prefix: str) -> Iterator[tuple[str, FileStamp]]:
    """Path and state of each file; files that disappear meanwhile are left out."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                if not name.startswith(".") and name not in _FOLDERS:
                    yield from _files(entry.path, f"{prefix}{name}/")
            elif not any(fnmatchcase(name, pattern) for pattern in _LEFTOVERS):
                with suppress(OSError):
                    status = entry.stat()
                    yield f"{prefix}{name}", (status.st_mtime_ns, status.st_size, status.st_ino)
