"""Processes, messages and the cache: every way in which commands touch the world."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.system.errors import UsageError
from kbuild.system.processes import Runner
from kbuild.system.ui import Ui


@dataclass(frozen=True)
class Services:
    """The runner, the terminal and the folders that a command uses; tests replace them."""

    runner: Runner
    ui: Ui
    cache: Path
    """kbuild's cache folder; it need not exist."""
    cwd: Path = field(default_factory=Path.cwd)
    """Folder at which relative paths of the command line start."""

    def folder(self, folder: Path | None) -> Path:
        """The absolute path of a folder from the command line; the current one when not given.

        Raises:
            UsageError: there is no such folder.
            OSError: it cannot be looked up.
        """
        path = self.path(folder) if folder is not None else self.cwd
        if not path.is_dir():
            reason = "is a file" if path.exists() else "does not exist"
            raise UsageError(f"`{folder}` {reason}", hint="give the folder that holds build.toml")
        return path

    def path(self, path: Path) -> Path:
        """The absolute path of what was given; links are kept, `..` is resolved."""
        return Path(os.path.normpath(self.cwd / os.path.expanduser(path)))  # noqa: PTH111 - never fails
