"""A compiler and the processes that it started: the memory that they hold, and halting them.

Only where the kernel lists children (Linux); elsewhere a tree holds nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20
_ATTEMPTS = 3


class Tree:
    """The processes below and including `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def memory(self) -> int:
        """MiB of physical memory; pages that processes share count for each."""
        return sum(map(_pages, _below(self._pid))) * _PAGE // _MIB

    def send(self, number: int) -> None:
        """Send a signal to all, parents first, and to those that they started meanwhile."""
        told: set[int] = set()
        for _ in range(_ATTEMPTS):
            fresh = [pid for pid in _below(self._pid) if pid not in told]
            for pid in fresh:
                try:
                    os.kill(pid, number)
                except OSError:  # it has ended
                    continue
            told.update(fresh)
            if not fresh:
                return


def _below(pid: int) -> Iterator[int]:
    yield pid
    for child in _read(f"/proc/{pid}/task/{pid}/children").split():
        yield from _below(int(child))


def _pages(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, 1 << 16)
    except OSError:  # it has ended
        return b""
    finally:
        os.close(handle)
