"""Running a compiler: its words, its peak memory, and whether the system killed it."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_TICK = 250
"""Milliseconds between two looks at a running compiler."""
_KILLED_CODE = 137
_KILLED_WORDS = (
    b"Killed signal terminated program",  # gcc
    b"died due to signal 9",  # nvcc
    b"unable to execute command: Killed",  # clang
)
NOT_FOUND = 127


class Ended:
    """A compilation that is over."""

    def __init__(self, status: int, said: bytes) -> None:
        self.status = status
        """Exit status as a shell counts: 128 and the signal for one that was killed."""
        self.said = said
        self.start = self.end = time.time()
        self.user = self.system = 0.0
        self.peak = 0
        """MiB of the largest process."""

    @property
    def was_killed(self) -> bool:
        """True when the compiler, or a part of it, died of SIGKILL."""
        words = any(word in self.said for word in _KILLED_WORDS)
        return self.status == _KILLED_CODE or (self.status != 0 and words)


def run(argv: list[str], scratch: str, look: Callable[[int], None]) -> Ended:
    """Run to the end. What it says is collected in the file `scratch`, which is gone afterwards.

    `look` is called with the process id a few times each second, where the system allows it.
    """
    start = time.time()
    handle = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.unlink(scratch)
    streams = [(os.POSIX_SPAWN_DUP2, handle, 1), (os.POSIX_SPAWN_DUP2, handle, 2)]
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=streams)
    except OSError as error:
        return Ended(NOT_FOUND, f"{argv[0]}: {error.strerror}\n".encode())
    _attend(pid, look)
    _, status, used = os.wait4(pid, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    with open(handle, "rb") as file:
        ended = Ended(_code(status), file.read())
    ended.start, ended.end = start, time.time()
    ended.user, ended.system = used.ru_utime, used.ru_stime
    ended.peak = used.ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return ended


def _attend(pid: int, look: Callable[[int], None]) -> None:
    """Look until the process has ended."""
    if sys.platform != "linux":
        return
    import select

    try:
        handle = os.pidfd_open(pid)
    except OSError:  # an old kernel
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while not poll.poll(_TICK):
        look(pid)
    os.close(handle)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
