"""What every command is given: the doors to the world, and where it was called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import StorageError, UsageError
from kbuild.runtime.processes import Runner, exec_program
from kbuild.ui import Ui

SHARED_CACHE_VARIABLE = "KBUILD_SHARED_CACHE"
"""Variable that lets others write to the cache."""
_WRITABLE_BY_OTHERS, _WRITABLE_BY_GROUP = 0o002, 0o020


@dataclass(frozen=True)
class Context:
    """The surroundings of one command."""

    ui: Ui
    runner: Runner
    cache: Path
    """kbuild's cache folder; it need not exist."""
    cwd: Path
    """Where relative paths of the command line start."""
    become: Callable[[Sequence[str], Path], None] = exec_program
    """Goes on as another program, in a folder."""

    def folder(self, given: Path | None) -> Path:
        """The absolute path of a folder from the command line; the current one when not given.

        Raises:
            UsageError: there is no such folder.
            OSError: it cannot be looked up.
        """
        path = self.path(given) if given is not None else self.cwd
        if not path.is_dir():
            reason = "is a file" if path.exists() else "does not exist"
            raise UsageError(f"`{given}` {reason}", hint="give the folder that holds build.toml")
        return path

    def path(self, given: Path) -> Path:
        """The absolute path of what was given; links are kept, `..` is resolved."""
        return Path(os.path.normpath(self.cwd / os.path.expanduser(given)))  # noqa: PTH111 - never fails


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where kbuild keeps what it can make again.

    `KBUILD_CACHE_DIR`, else `kbuild` in `XDG_CACHE_HOME`, else `~/.cache/kbuild`.

    Raises:
        StorageError: there is no home.
    """
    own = environ.get("KBUILD_CACHE_DIR")
    if own:
        return Path(own).absolute()
    shared = environ.get("XDG_CACHE_HOME")
    if shared:
        return Path(shared).absolute() / "kbuild"
    try:
        return Path.home().absolute() / ".cache" / "kbuild"
    except RuntimeError as error:  # no HOME, and no user of this id
        hint = "set KBUILD_CACHE_DIR to a folder that can be written, or HOME"
        raise StorageError("there is no home folder to keep the cache in", hint=hint) from error


def validate_cache_owner(cache: Path, environ: Mapping[str, str]) -> None:
    """Refuse a cache that another user can write to: what is in it goes into libraries, and is run.

    Root may own it, and a group may write to it that is the user's own or root's. Three calls of
    `stat` decide, and no group is looked up where none may write.

    Raises:
        StorageError: somebody else can, and `KBUILD_SHARED_CACHE` does not say that they may.
    """
    if environ.get(SHARED_CACHE_VARIABLE) == "1" or not hasattr(os, "geteuid"):
        return
    for folder in (cache, cache / "objects", cache / "store"):
        try:
            status = folder.stat()
        except OSError:
            continue  # it is made, or refused, where it is used
        who = foreign_writer(status, os.geteuid())
        if who:
            raise StorageError(
                f"`{folder}` belongs to kbuild's cache, and {who} can write to it: what is found "
                "there goes into what you build",
                hint=f"set KBUILD_CACHE_DIR to a folder of your own, or `chmod go-w` this one; "
                f"{SHARED_CACHE_VARIABLE}=1 says that whoever can write there may",
            )


def foreign_writer(status: os.stat_result, user: int) -> str:
    """Who can write to a folder besides the user and root, in words; empty when nobody can."""
    if status.st_uid not in (0, user):
        return f"its owner, {_user_name(status.st_uid)},"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return "everybody"
    if (
        status.st_mode & _WRITABLE_BY_GROUP
        and status.st_gid != 0
        and not _is_own_group(status.st_gid, user)
    ):
        return f"the group with the number {status.st_gid}"
    return ""


def _user_name(user: int) -> str:
    import pwd

    try:
        return f"`{pwd.getpwuid(user).pw_name}`"
    except KeyError:
        return f"the user with the number {user}"


def _is_own_group(group: int, user: int) -> bool:
    """True for the group that many systems give each user alone."""
    import grp
    import pwd

    try:
        name, known = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return known.gr_name == name and {*known.gr_mem} <= {name}
