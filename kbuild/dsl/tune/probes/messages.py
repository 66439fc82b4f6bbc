"""Messages of worker processes to kbuild: one JSON object per line, from several at once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
from typing import Any

HANG_TIMEOUT_S = 180
"""A worker that sends no message for so long, while it has a job, hangs, and is ended."""
_LOCK = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
_COMMON: dict[str, Any] = {}


def identify_worker(worker: str) -> None:
    """Name the worker in each message from now on, and end the process if it sends none."""
    _COMMON["worker"] = worker
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends also a process that waits in C
    signal.alarm(HANG_TIMEOUT_S)


def pause_watchdog() -> None:
    """Let the worker wait for a job without messages."""
    signal.alarm(0)


def send_message(document: dict[str, Any]) -> None:
    """Send one line of JSON, at once and in one piece."""
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
