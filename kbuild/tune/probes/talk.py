"""What the processes say to kbuild: one JSON object per line, from several processes at once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
from typing import Any

HANG_TIMEOUT_S = 180
"""A worker that says nothing for so long, while it has a job, hangs, and is ended."""
_LOCK = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
_COMMON: dict[str, Any] = {}


def speak_for(worker: str) -> None:
    """Name the worker in each line from now on, and end the process when it says nothing more."""
    _COMMON["worker"] = worker
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends also a process that waits in C
    signal.alarm(HANG_TIMEOUT_S)


def rest() -> None:
    """Nothing is going to be said: the worker waits for a job."""
    signal.alarm(0)


def say(document: dict[str, Any]) -> None:
    """One line of JSON, at once and in one piece."""
    if _COMMON:
        signal.alarm(HANG_TIMEOUT_S)
    sys.stdout.flush()
    data = f"\n{json.dumps(_COMMON | document)}\n".encode()
    fcntl.lockf(_LOCK, fcntl.LOCK_EX)  # it ends with the process that holds it
    try:
        while data:
            data = data[os.write(1, data) :]
    finally:
        fcntl.lockf(_LOCK, fcntl.LOCK_UN)
