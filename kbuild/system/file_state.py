"""The state of a file at a moment: size, times and inode, and the hash of its content.

Compiler launchers import this once per translation unit: it imports nothing that takes time.
"""

from __future__ import annotations

import os
import stat
import sys
import time

TYPE_CHECKING = False


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from hashlib import blake2b
    from typing import Any
else:
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL first
    except ImportError:
        from hashlib import blake2b

FileState = tuple[int, int, int, int, str] | None
"""Size, mtime and ctime in ns, inode, and the hash of the content; the hash is empty where only the
status was asked for. A folder whose entries matter has the size -1 and no ctime, which links of
other names and modes change. None for what is absent."""

_HASH = 16
_BLOCK = 1 << 20
_ATTEMPTS = 5
_COARSE = 2_000_000_000
"""Nanoseconds by which times lag behind the clock on a file system that keeps whole seconds."""
_SECOND = 1_000_000_000
_LAG = 20_000_000
"""Nanoseconds by which times lag behind the clock elsewhere, where the files' clock cannot be read.
"""
_FILES_CLOCK = 5
"""CLOCK_REALTIME_COARSE of Linux."""


def file_clock() -> int:
    """Now (ns): a file that changes from now on has at least this time."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(_FILES_CLOCK)
    return time.time_ns() - _LAG


def hash_bytes(data: bytes) -> str:
    """Hex digest of some bytes."""
    return blake2b(data, digest_size=_HASH).hexdigest()


def stat_state(path: str | os.PathLike[str]) -> FileState:
    """The status of a path right now."""
    try:
        return state_of_stat(os.stat(path))
    except (OSError, ValueError):
        return None


def identify(path: str | os.PathLike[str]) -> FileState:
    """The status of a file right now, and what it holds; None when it cannot be read.

    Both belong together: a file that is written meanwhile is read again.
    """
    try:
        return _whole(lambda: _read(path))
    except (OSError, ValueError):
        return None


def copy_and_identify(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> FileState:
    """Copy a file's content; returns the identity of just these bytes.

    Raises:
        OSError: one of the two cannot be used.
    """

    def copy() -> tuple[FileState, bool]:
        with open(target, "wb") as file:
            return _read(source, file.write)

    since = file_clock()
    return storable_state(_whole(copy), since)


def may_have_changed_since(identity: FileState, since: int) -> bool:
    """True when the file may have changed at `since` (of `file_clock`) or later.

    An absent file counts as changed: it may have been deleted just now.
    """
    if identity is None:
        return True
    # A time without a fraction is taken for that of a file system that keeps whole seconds.
    return any(
        moment >= (since if moment % _SECOND else since - _COARSE) for moment in identity[1:3]
    )


def storable_state(identity: FileState, since: int) -> FileState:
    """The identity as it may be kept, of a file that was read at `since`.

    A change right after that could leave its times as they are. Of such a file, the hash alone is
    kept.
    """
    if identity is None or not may_have_changed_since(identity, since):
        return identity
    # Times of 0 match no file, so that `is_unchanged` compares the content.
    return (identity[0], 0, 0, 0, identity[4])


def is_unchanged(path: str | os.PathLike[str], then: FileState) -> bool:
    """True when the path still is what it was: by its status or else by its content."""
    now = stat_state(path)
    if now is None or then is None:
        return now is then
    if now[:4] == then[:4]:
        return True
    if now[0] != then[0] or not then[4]:
        return False
    identity = identify(path)
    return identity is not None and identity[4] == then[4]


def has_changed_since(path: str | os.PathLike[str], then: FileState, since: int) -> bool:
    """True when a file that was identified at `since` may have been another one meanwhile.

    Another inode or mtime is a change, also where the content is what it was: it may have been put
    back. Of a file with the same, the content decides where the status alone does not tell.
    """
    now = stat_state(path)
    if then is None or now is None:
        return then is not now
    if (then[0], then[1], then[3]) != (now[0], now[1], now[3]):
        return True
    if then[2] == now[2] and not may_have_changed_since(then, since):
        return False
    identity = identify(path)
    return identity is None or identity[4] != then[4]


def all_unchanged(root: str | os.PathLike[str], observed: Mapping[str, FileState]) -> bool:
    """True when every path still is what it was; absolute paths are taken as they are."""
    return all(is_unchanged(os.path.join(root, path), then) for path, then in observed.items())


def parse_file_states(data: Mapping[str, Any]) -> dict[str, FileState]:
    """File states from JSON.

    Raises:
        ValueError, TypeError: the data are no file states.
    """
    return {path: None if then is None else _of_json(*then) for path, then in data.items()}


def _of_json(size: int, mtime: int, ctime: int, inode: int, content: str) -> FileState:
    return (int(size), int(mtime), int(ctime), int(inode), str(content))


def state_of_stat(status: os.stat_result, content: str = "") -> tuple[int, int, int, int, str]:
    """The state of a path from its status, with the hash of its content."""
    if stat.S_ISDIR(status.st_mode):
        return (-1, status.st_mtime_ns, 0, status.st_ino, "")
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, content)


def _whole(read: Callable[[], tuple[FileState, bool]]) -> FileState:
    """The identity of a file that is read until it stays as it is meanwhile.

    A file that never stays gets its last state, which no later look will match.
    """
    identity, is_whole = read()
    for _ in range(_ATTEMPTS):
        if is_whole:
            break
        identity, is_whole = read()
    return identity


def _read(
    path: str | os.PathLike[str], take: Callable[[bytes], object] = lambda _: None
) -> tuple[FileState, bool]:
    """The identity, and True if the file did not change while it was read.

    Nothing is read from anything but a file: a pipe would never end.
    """
    hasher = blake2b(digest_size=_HASH)
    # Opening a pipe without O_NONBLOCK waits for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    before = os.fstat(handle)
    if not stat.S_ISREG(before.st_mode):
        os.close(handle)
        return state_of_stat(before), True
    with open(handle, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
            take(block)
        after = os.fstat(handle)
    identity = state_of_stat(after, hasher.hexdigest())
    return identity, state_of_stat(before)[:4] == identity[:4]
