"""What every verb is given: the doors to the world, and where it was called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import UsageError
from kbuild.run import Runner, become
from kbuild.ui import Ui


@dataclass(frozen=True)
class Context:
    """The surroundings of one command."""

    ui: Ui
    runner: Runner
    cache: Path
    """kbuild's cache folder; it need not exist."""
    cwd: Path
    """Where relative paths of the command line start."""
    become: Callable[[Sequence[str], Path], None] = become
    """Goes on as another program, in a folder."""

    def folder(self, given: Path | None) -> Path:
        """The absolute path of a folder from the command line; the current one when not given.

        Raises:
            UsageError: there is no such folder.
        """
        path = self.path(given) if given is not None else self.cwd
        if not path.is_dir():
            reason = "is a file" if path.exists() else "does not exist"
            raise UsageError(f"`{given}` {reason}", hint="give the folder that holds build.toml")
        return path

    def path(self, given: Path) -> Path:
        """The absolute path of what was given; links are kept, `..` is resolved."""
        return Path(os.path.normpath(self.cwd / given.expanduser()))


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where kbuild keeps what it can make again.

    `KBUILD_CACHE_DIR`, else `kbuild` in `XDG_CACHE_HOME`, else `~/.cache/kbuild`.
    """
    own = environ.get("KBUILD_CACHE_DIR")
    if own:
        return Path(own).absolute()
    shared = environ.get("XDG_CACHE_HOME")
    return Path(shared or Path.home() / ".cache").absolute() / "kbuild"
