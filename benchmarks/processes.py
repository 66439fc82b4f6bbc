"""What the compilers below this script hold together, sampled while something runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_INTERVAL = 0.05
_PAGE = 4096
_MEGABYTE = 1e6


@dataclass
class Sampled:
    """Maxima over all samples."""

    megabytes: float = 0.0
    """Sum over all processes but Python's: kbuild and its launchers are no compilers."""
    compilers: int = 0
    """That existed at the same time, halted ones included."""
    samples: int = 0


def below(pid: int) -> Iterator[int]:
    """All processes that `pid` has started, and those that they have."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from below(child)


def _look(pid: int, sampled: Sampled) -> None:
    total, compilers = 0, 0
    for process in below(pid):
        with suppress(OSError):
            name = Path(f"/proc/{process}/comm").read_text().strip()
            if not name.startswith("python"):
                total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
                compilers += name in {"cc1plus", "clang", "clang++"}
    sampled.megabytes = max(sampled.megabytes, total * _PAGE / _MEGABYTE)
    sampled.compilers = max(sampled.compilers, compilers)
    sampled.samples += 1


@contextmanager
def sampling(pid: int) -> Iterator[Sampled]:
    """Sample what runs below `pid` until the end."""
    sampled, ended = Sampled(), threading.Event()

    def sample() -> None:
        while not ended.wait(_INTERVAL):
            _look(pid, sampled)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sampled
    finally:
        ended.set()
        thread.join()


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since the machine started."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def now() -> float:
    """Seconds."""
    return time.perf_counter()
