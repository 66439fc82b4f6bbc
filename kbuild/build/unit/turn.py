"""Who makes an object that several variants want at the same moment: the first; the others wait.

A waiting unit looks the object up again when the first is done. If that one does not fit (it was
made from other headers), it compiles beside all others: nobody waits twice.
"""

from __future__ import annotations

import os

_TORCH = (b"<torch/", b"<ATen/", b"<c10/", b'"torch/', b'"ATen/', b'"c10/')


def is_shareable(source: bytes) -> bool:
    """False for sources that include Torch themselves: no two releases share their objects."""
    return not any(mark in source for mark in _TORCH)


class Turn:
    """A lock beside an object's folder in the cache; it dies with its process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def is_first(self) -> bool:
        """True when nobody makes the object now; the turn is then this unit's until `end`."""
        import fcntl

        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the first has ended; the turn is nobody's afterwards."""
        import fcntl

        fcntl.flock(self._file, fcntl.LOCK_SH)
        self.end()

    def end(self) -> None:
        """Let the others look."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
