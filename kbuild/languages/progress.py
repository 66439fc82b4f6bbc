"""How far a call's units are."""

from __future__ import annotations

import threading
from collections.abc import Callable

Tell = Callable[[int, int, str], None]
"""Told how many units are done, of how many, and what was done last."""


class Progress:
    """Counts units for `tell`, from several threads."""

    def __init__(self, total: int, done: int, tell: Tell) -> None:
        self._total, self._done, self._tell = total, done, tell
        self._lock = threading.Lock()

    def step(self, label: str) -> None:
        """One more is done."""
        with self._lock:
            self._done += 1
            self._tell(self._done, self._total, label)
