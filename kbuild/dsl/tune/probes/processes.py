"""Worker processes: their messages to kbuild, and the lock of the device that they measure on."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HANG_TIMEOUT_S = 180
"""Seconds without a message after which a worker with a job is ended, because it hangs."""
_LOCK = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
_COMMON: dict[str, Any] = {}


def identify_worker(worker: str) -> None:
    """Add the worker's name to each message, and end the process if it sends none."""
    _COMMON["worker"] = worker
    # The default action also ends a process that hangs in C code; a Python handler would not run.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(HANG_TIMEOUT_S)


def pause_watchdog() -> None:
    """Let the worker wait for its next job without messages."""
    signal.alarm(0)


def send_message(document: dict[str, Any]) -> None:
    """Write one line of JSON to stdout, at once and without interleaving."""
    if _COMMON:
        signal.alarm(HANG_TIMEOUT_S)
    sys.stdout.flush()
    # The line feed in front ends what the author's code has printed without one.
    data = f"\n{json.dumps(_COMMON | document)}\n".encode()
    # Not `flock`, which forks would share with the file that they have inherited.
    fcntl.lockf(_LOCK, fcntl.LOCK_EX)  # released when the process that holds it ends
    try:
        while data:
            data = data[os.write(1, data) :]
    finally:
        fcntl.lockf(_LOCK, fcntl.LOCK_UN)


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
        # In a folder that all users share, somebody else may have made it first.
        if folder.lstat().st_uid != os.getuid():
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(folder / f"{name}.lock", flags, 0o600)
    except OSError:
        return None
