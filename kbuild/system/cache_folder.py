"""The folder of kbuild's cache, and the users who may write there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kbuild.system.cache import KINDS, SHARED_CACHE_VARIABLE

_WRITABLE_BY_OTHERS, _WRITABLE_BY_GROUP = 0o002, 0o020


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder of kbuild's cache.

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
    except RuntimeError as error:
        from kbuild.system.errors import StorageError

        # no HOME, and no user of this id
        hint = "set KBUILD_CACHE_DIR to a folder that can be written, or HOME"
        raise StorageError("there is no home folder to keep the cache in", hint=hint) from error


def validate_cache_owner(cache: Path, environ: Mapping[str, str]) -> None:
    """Refuse a cache that another user can write to: what is in it goes into libraries, and is run.

    Root may own it, and a group may write to it that is the user's own or root's. A few calls of
    `stat` decide, and no group is looked up where none may write.

    Raises:
        StorageError: somebody else can, and `KBUILD_SHARED_CACHE` does not say that they may.
    """
    if environ.get(SHARED_CACHE_VARIABLE) == "1":
        return
    # A folder inside may be writable although the one around it is not.
    names = ("", "store", *(kind.name for kind in KINDS))
    for folder in (cache / name for name in names):
        try:
            status = folder.stat()
        except OSError:
            continue  # it is made, or refused, where it is used
        who = foreign_writer(status, os.geteuid())
        if who:
            from kbuild.system.errors import StorageError

            raise StorageError(
                f"`{folder}` belongs to kbuild's cache, and {who} can write to it, and its "
                "content goes into your builds",
                hint=f"set KBUILD_CACHE_DIR to a folder of your own, or `chmod go-w` this one; "
                f"{SHARED_CACHE_VARIABLE}=1 accepts that they can",
            )


def foreign_writer(status: os.stat_result, user: int) -> str:
    """Name who else than the user and root can write to a folder; empty if nobody can."""
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
