"""Who holds how much of the memory budget: one small file that every unit of a run locks.

A unit starts when its weight fits beside those that run, or when nothing runs at all. The first to
wait is the first to start; a lighter one may overtake it for a while, not forever. A weight is a
guess: what a unit really holds is written beside it, and counts when it is more.
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
RUNS, WAITS, PAUSED, GIVES_WAY = "r", "w", "p", "g"


class Claim:
    """One process's line: state, weight in MiB, since when it is there, and MiB in use."""

    def __init__(self, pid: int, state: str, weight: int, since: float, used: int = 0) -> None:
        self.pid, self.state, self.weight = pid, state, weight
        self.since, self.used = since, used

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.weight} {self.since:.3f} {self.used}"

    @property
    def expected(self) -> int:
        """MiB that it may come to hold; of a paused one what it holds."""
        if self.state == PAUSED:
            return self.used
        return self.weight if self.used <= self.weight else int(self.used * _GROWTH)

    @property
    def age(self) -> tuple[float, int]:
        """Orders claims, the oldest first."""
        return self.since, self.pid


class Ledger:
    """The budget in MiB, and the file that says what is taken."""

    def __init__(self, path: str, budget: int) -> None:
        self._path = path
        self._budget = budget

    def take(self, weight: int, expired: Callable[[], bool]) -> float | None:
        """Wait for room; seconds waited, or None when `expired()` came first."""
        began = time.time()
        claim = Claim(os.getpid(), WAITS, max(1, weight), began)
        pauses = iter(_PAUSES)
        pause = next(pauses)
        while not self._admit(claim):
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

    def advise(self, used: int) -> str:
        """Tell that this process's unit holds `used` MiB; the state that it is to be in.

        The youngest units pause until what runs fits again. The oldest always runs, so that
        memory comes free; when even that is too much, the youngest of the paused gives way.
        """
        with _Locked(self._path) as table:
            own = [claim for claim in table.claims if claim.pid == os.getpid()]
            if not own:
                return RUNS
            others = [claim for claim in table.claims if claim.pid != os.getpid()]
            own[0].used = used
            advice = self._advice(own[0], [one for one in others if one.state != WAITS])
            own[0].state = PAUSED if advice == GIVES_WAY else advice
        return advice

    def _advice(self, claim: Claim, others: list[Claim]) -> str:
        running = [other for other in others if other.state == RUNS]
        paused = [other for other in others if other.state == PAUSED]
        if claim.state == RUNS:
            too_much = _expected([claim, *others]) > self._budget
            is_youngest = all(other.age < claim.age for other in running)
            return PAUSED if running and is_youngest and too_much else RUNS
        held = claim.used + sum(other.used for other in others)
        if others and held > self._budget and all(other.age < claim.age for other in paused):
            return GIVES_WAY
        is_next = all(claim.age < other.age for other in paused)
        resumed = Claim(claim.pid, RUNS, claim.weight, claim.since, claim.used)
        fits = not running or _expected([resumed, *others]) <= self._budget
        return RUNS if is_next and fits else PAUSED

    def _admit(self, claim: Claim) -> bool:
        with _Locked(self._path) as table:
            others = [other for other in table.claims if other.pid != claim.pid]
            if self._fits(claim, others):
                claim.state, claim.since = RUNS, time.time()
            table.claims = [*others, claim]
        return claim.state == RUNS

    def _fits(self, claim: Claim, others: list[Claim]) -> bool:
        holding = [other for other in others if other.state != WAITS]
        if not holding:
            return True
        if any(other.state == PAUSED for other in holding):
            return False
        now = time.time()
        overtaken = any(
            other.state == WAITS and other.since < claim.since and now - other.since > _PATIENCE
            for other in others
        )
        return _expected(holding) + claim.weight <= self._budget and not overtaken


def _expected(claims: list[Claim]) -> int:
    return sum(claim.expected for claim in claims)


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
        pid, state, weight, since, used = line.split(" ")
        yield Claim(int(pid), state, int(weight), float(since), int(used))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
