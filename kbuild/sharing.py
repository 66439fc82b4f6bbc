"""Who uses a folder at the moment: many processes that read it, or one that takes things away.

A lock file in the folder that dies with its process. Where there is no `flock` (Windows), and
in a folder that cannot be written, nobody is kept out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = ".use"


class InUseError(Exception):
    """Somebody uses the folder."""


@contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Use the folder; waits while somebody takes things away."""
    with _locked(folder, exclusive=False):
        yield


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Have the folder to oneself.

    Raises:
        InUseError: somebody uses it.
    """
    with _locked(folder, exclusive=True):
        yield


@contextmanager
def _locked(folder: Path, *, exclusive: bool) -> Iterator[None]:
    handle = _opened(folder)
    if handle is None:
        yield
        return
    try:
        _lock(handle, exclusive=exclusive)
        yield
    finally:
        os.close(handle)


def _opened(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / _NAME, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


def _lock(handle: int, *, exclusive: bool) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except BlockingIOError:
        raise InUseError from None
    except OSError:  # a network file system without locks
        return
