"""What a power cut must not undo or mix up: files that are on the disk, folders that change places.

A rename alone promises nothing of that: many file systems write names before contents, and a file
whose name survived may then be empty. What is only a cache, and is looked at before it is believed,
needs none of this.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

_FEW = 64
"""Up to so many files are synced one by one, and wait for nobody else's data."""
_AT_CWD = -100
_EXCHANGE = 2
"""`RENAME_EXCHANGE` of Linux, and `RENAME_SWAP` of macOS."""
_UNABLE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)
"""How kernels, file systems and sandboxes say that they cannot exchange anything."""


def sync(path: Path) -> None:
    """Have a file's content, or a folder's names, on the disk.

    Raises:
        OSError: the disk took less than the system had accepted.
    """
    if sys.platform == "win32":  # which syncs only what is open for writing, and no folders
        return
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNABLE:  # some file systems sync no folders
            raise
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Have a folder and everything below it on the disk: see `sync`."""
    paths = [*_walk(root)]
    if len(paths) <= _FEW or not _sync_file_system(root):
        for path in paths:
            sync(path)


def _walk(root: Path) -> Iterator[Path]:
    """Files, then the folder that names them; no links."""
    for base, _, names in os.walk(root, topdown=False):
        yield from (path for name in names if not (path := Path(base, name)).is_symlink())
        yield Path(base)


def _sync_file_system(folder: Path) -> bool:
    """All that the file system has not written yet; False where that cannot be asked for."""
    if sys.platform != "linux":
        return False
    with suppress(AttributeError):
        function = _libc().syncfs
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return bool(function(handle) == 0)
        finally:
            os.close(handle)
    return False


def exchange(one: Path, other: Path) -> bool:
    """Have two files or folders change places, so that nobody ever sees either place empty.

    Returns:
        False, and nothing has changed, where kernel, C library or file system cannot do it.

    Raises:
        OSError: it was refused.
    """
    import ctypes

    names = (os.fsencode(one), os.fsencode(other))
    try:
        if sys.platform == "linux":
            status = _libc().renameat2(_AT_CWD, names[0], _AT_CWD, names[1], _EXCHANGE)
        elif sys.platform == "darwin":
            status = _libc().renamex_np(*names, _EXCHANGE)
        else:
            return False
    except AttributeError:  # an old C library
        return False
    number = ctypes.get_errno()
    if status and number not in _UNABLE:
        raise OSError(number, os.strerror(number), str(one), None, str(other))
    return not status


def _libc() -> CDLL:
    from ctypes import CDLL

    return CDLL(None, use_errno=True)
