"""Who makes an object that several variants want at the same moment: the first; the others wait.

A waiting unit looks the object up again when the first is done. If that one does not fit (it was
made from other headers), it compiles beside all others: nobody waits twice.
"""

from __future__ import annotations

import os

from kbuild.filestate import digest

TORCH = "/torch/"
"""Name of Torch's headers in generated projects, given by `-ffile-prefix-map`."""
_TORCH = (b"<torch/", b"<ATen/", b"<c10/", b'"torch/', b'"ATen/', b'"c10/')
_TOOLKIT = (b"<cu", b"<c10/cuda/", b"<ATen/cuda/", b"<hip", b"<c10/hip/", b"<ATen/hip/")


def turn_key(key: str, source: bytes, torch: str, compilers: str) -> str:
    """Name of the turn: the same for units whose objects are likely to be the same.

    Args:
        key: the object's key, which leaves headers out.
        source: what the unit's file holds.
        torch: where Torch's headers are. A source that includes some is compiled once for each
            Torch: its variants for several toolkits wait for one of them.
        compilers: their versions. A source that includes a toolkit's headers as well waits for
            nobody who has another toolkit.
    """
    parts = [key]
    if _includes(source, _TORCH):
        parts.append(torch)
        if _includes(source, _TOOLKIT):
            parts.append(compilers)
    return digest("\0".join(parts).encode("utf-8", "surrogateescape"))


def _includes(source: bytes, marks: tuple[bytes, ...]) -> bool:
    return any(mark in source for mark in marks)


class Turn:
    """A lock in the cache; it dies with its process."""

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
