"""Allows one process of a user at a time to measure on a device."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def device_in_use(name: str, tell_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the device's lock; call `tell_waiting` before waiting for another process.

    The lock ends with the process. Nothing is locked where the folder for temporary files cannot
    be used.
    """
    folder = Path(tempfile.gettempdir(), f"kbuild-devices-{os.getuid()}")
    handle = _opened(folder, name)
    try:
        if handle is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell_waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _opened(folder: Path, name: str) -> int | None:
    """Open the lock file in the user's folder; None if the folder belongs to somebody else."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(folder / f"{name}.lock", flags, 0o600)
    except OSError:
        return None
