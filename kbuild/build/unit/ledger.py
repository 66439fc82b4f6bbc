"""Who holds how much of the memory budget: one small file that every unit of a run locks.

A unit starts when its weight fits beside those that run, or when nothing runs at all. The first to
wait is the first to start; a lighter one may overtake it for a while, not forever. A weight is a
guess: what a unit really holds is written beside it, and counts when it is more.

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
_GROWTH = 1.25
"""How far a unit that has outgrown its weight is taken to grow."""
_HUGE = 1 << 31
"""No process id, amount or count is as large."""
RUNS, WAITS, PAUSED, GIVES_WAY = "r", "w", "p", "g"


class Claim:
    """One unit's line: state, MiB for each thread, since when it is there, MiB in use, threads."""

    def __init__(
        self, pid: int, state: str, weight: int, since: float, used: int = 0, *, threads: int = 1
    ) -> None:
        self.pid, self.state, self.weight = pid, state, weight
        self.since, self.used, self.threads = since, used, threads

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.weight} {self.since:.3f} {self.used} {self.threads}"

    def running(self, threads: int = 0) -> Claim:
        """The same when it runs, with other threads where they are given."""
        count = threads or self.threads
        return Claim(self.pid, RUNS, self.weight, self.since, self.used, threads=count)

    @property
    def processes(self) -> list[int]:
        """MiB that each process of a running unit may come to hold."""
        if self.used <= self.weight * self.threads:
            return [self.weight] * self.threads
        return [int(self.used * _GROWTH)]

    @property
    def age(self) -> tuple[float, int]:
        """Orders claims, the oldest first."""
        return self.since, self.pid


class Ledger:
    """The budget in MiB, and the file that says what is taken.

    `jobs` is how many compiler processes there are at the most; 0 when nobody keeps count.
    """

    def __init__(self, path: str, budget: int, jobs: int = 0, pid: int = 0) -> None:
        """`pid` is the process that compiles, when it is not this one."""
        self._path = path
        self._pid = pid or os.getpid()
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
        claim = Claim(self._pid, WAITS, max(1, weight), began)
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
        """Give back what the process holds."""
        with _Locked(self._path) as table:
            table.claims = [claim for claim in table.claims if claim.pid != self._pid]

    def advise(self, used: int) -> str:
        """Tell that the process's unit holds `used` MiB; the state that it is to be in.

        The youngest units pause until what runs fits again. The oldest always runs, so that
        memory comes free; when even that is too much, the youngest of the paused gives way.
        """
        with _Locked(self._path) as table:
            own = [claim for claim in table.claims if claim.pid == self._pid]
            if not own:
                return RUNS
            others = [claim for claim in table.claims if claim.pid != self._pid]
            own[0].used = used
            advice = self._advice(own[0], [one for one in others if one.state != WAITS])
            own[0].state = PAUSED if advice == GIVES_WAY else advice
        return advice

    def _advice(self, claim: Claim, others: list[Claim]) -> str:
        running = [other for other in others if other.state == RUNS]
        paused = [other for other in others if other.state == PAUSED]
        if claim.state == RUNS:
            too_much = not self._is_room([claim, *others])
            is_youngest = all(other.age < claim.age for other in running)
            return PAUSED if running and is_youngest and too_much else RUNS
        held = claim.used + sum(other.used for other in others)
        if others and held > self._budget and all(other.age < claim.age for other in paused):
            return GIVES_WAY
        is_next = all(claim.age < other.age for other in paused)
        fits = not running or self._is_room([claim.running(), *others])
        return RUNS if is_next and fits else PAUSED

    def _admit(self, claim: Claim, threads: int) -> bool:
        with _Locked(self._path) as table:
            others = [other for other in table.claims if other.pid != claim.pid]
            self.threads = self._room(claim, others, threads)
            if self.threads:
                claim.state, claim.since = RUNS, time.time()
                claim.threads = self.threads
            table.claims = [*others, claim]
        return claim.state == RUNS

    def _room(self, claim: Claim, others: list[Claim], threads: int) -> int:
        """Threads that fit; 0 when not even one does."""
        holding = [other for other in others if other.state != WAITS]
        if not holding:
            return self._threads_beside([], claim, threads) or 1
        if any(other.state == PAUSED for other in holding):
            return 0
        now = time.time()
        overtaken = any(
            other.state == WAITS and other.since < claim.since and now - other.since > _PATIENCE
            for other in others
        )
        return 0 if overtaken else self._threads_beside(holding, claim, threads)

    def _threads_beside(self, holding: list[Claim], claim: Claim, threads: int) -> int:
        counts = range(threads, 0, -1)
        return next((n for n in counts if self._is_room([*holding, claim.running(n)])), 0)

    def _is_room(self, claims: list[Claim]) -> bool:
        """Whether these can stay as they are: what is paused holds what it has."""
        running = [claim for claim in claims if claim.state == RUNS]
        paused = sum(claim.used for claim in claims if claim.state == PAUSED)
        heaviest = sorted((each for claim in running for each in claim.processes), reverse=True)
        expected = max(sum(heaviest[: self._jobs or None]), sum(claim.used for claim in running))
        return paused + expected <= self._budget


class _Locked:
    """The ledger's lines while this process alone may change them; the dead are left out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.claims: list[Claim] = []

    def __enter__(self) -> _Locked:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        text = os.read(self._handle, 1 << 20).decode("utf-8", "replace")
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
    """The lines of claims; one that a full disk cut off claims nothing."""
    for line in text.splitlines():
        try:
            pid, state, weight, since, used, threads = line.split(" ")
            numbers = [int(word) for word in (pid, weight, used, threads)]
            claim = Claim(
                numbers[0], state, numbers[1], float(since), numbers[2], threads=numbers[3]
            )
        except ValueError:
            continue
        if min(numbers) >= 0 and max(numbers) < _HUGE:
            yield claim


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
