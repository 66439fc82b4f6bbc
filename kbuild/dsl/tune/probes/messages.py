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
    data = f"\n{json.dumps(_COMMON | document)}\n".encode()
    fcntl.lockf(_LOCK, fcntl.LOCK_EX)  # released when the process that holds it ends
    try:
        while data:
            data = data[os.write(1, data) :]
    finally:
        fcntl.lockf(_LOCK, fcntl.LOCK_UN)
