"""Who holds how much of the memory budget: one small file that every unit of a run locks.

A unit starts when its weight fits beside those that run, or when nothing runs at all. The first to
wait is the first to start; a lighter one may overtake it for a while, not forever.

A unit with threads may become as many processes, yet no more than `jobs` processes run at a time:
what counts is the weight of the `jobs` heaviest ones that there could be.
"""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE = 15.0
"""Seconds for which a waiting unit lets lighter ones overtake."""
_PAUSES = (0.02, 0.05, 0.1, 0.25)
_RUNS, _WAITS = "r", "w"


class Claim:
    """One unit's line: state, weight of each of its threads in MiB, since when it is there."""

    def __init__(self, pid: int, state: str, weight: int, since: float, threads: int = 1) -> None:
        self.pid, self.state, self.weight, self.since = pid, state, weight, since
        self.threads = threads

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.weight} {self.since:.3f} {self.threads}"


class Ledger:
    """The budget in MiB, and the file that says what is taken.

    `jobs` is how many compiler processes there are at the most; 0 when nobody keeps count.
    """

    def __init__(self, path: str, budget: int, jobs: int = 0) -> None:
        self._path = path
        self._budget = budget
        self._jobs = jobs
        self.threads = 1
        """How many threads the unit was given room for."""

    def take(self, weight: int, expired: Callable[[], bool], threads: int = 1) -> float | None:
        """Wait for room; seconds waited, or None when `expired()` came first.

        Args:
            weight: MiB of one thread.
            expired: whether waiting is of no use any more.
            threads: threads that the unit could use; it is given fewer when room is short.
        """
        began = time.time()
        claim = Claim(os.getpid(), _WAITS, max(1, weight), began)
        pauses = iter(_PAUSES)
        pause = next(pauses)
        while not self._admit(claim, threads):
            if expired():
                self.release()
                return None
            time.sleep(pause)
            pause = next(pauses, pause)
        return time.time() - began

    def release(self) -> None:
        """Give back what this process holds."""
        with _Locked(self._path) as table:
            table.claims = [claim for claim in table.claims if claim.pid != os.getpid()]

    def _admit(self, claim: Claim, threads: int) -> bool:
        with _Locked(self._path) as table:
            others = [other for other in table.claims if other.pid != claim.pid]
            claim.threads = self.threads = self._room(claim, others, threads)
            if self.threads:
                claim.state = _RUNS
            table.claims = [*others, claim]
        return claim.state == _RUNS

    def _room(self, claim: Claim, others: list[Claim], threads: int) -> int:
        """Threads that fit; 0 when not even one does."""
        running = [other for other in others if other.state == _RUNS]
        now = time.time()
        overtaken = any(
            other.state == _WAITS and other.since < claim.since and now - other.since > _PATIENCE
            for other in others
        )
        if not overtaken or not running:
            for count in range(threads, 0, -1):
                if self._most([*running, claim], count) <= self._budget:
                    return count
        return 0 if running else 1

    def _most(self, running: list[Claim], threads: int) -> int:
        """MiB that these can take at a time when the last of them has so many threads."""
        *before, last = running
        processes = [claim.weight for claim in before for _ in range(claim.threads)]
        processes += [last.weight] * threads
        return sum(sorted(processes, reverse=True)[: self._jobs or None])


class _Locked:
    """The ledger's lines while this process alone may change them; the dead are left out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.claims: list[Claim] = []

    def __enter__(self) -> _Locked:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        text = os.read(self._handle, 1 << 20).decode()
        self.claims = [claim for claim in _claims(text) if _lives(claim.pid)]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.truncate(self._handle, 0)
            os.write(self._handle, "\n".join(map(str, self.claims)).encode())
        finally:
            os.close(self._handle)


def _claims(text: str) -> Iterator[Claim]:
    for line in text.splitlines():
        pid, state, weight, since, threads = line.split(" ")
        yield Claim(int(pid), state, int(weight), float(since), int(threads))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
