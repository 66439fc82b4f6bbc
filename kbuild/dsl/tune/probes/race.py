"""Races between the candidates of one call.

Candidates take turns, so that clock drift affects all of them; a turn's median is one reading.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Stopwatch(Protocol):
    """Measures calls on one device."""

    def time(self, call: Callable[[], object], count: int) -> Sequence[float]:
        """Microseconds of each of `count` calls, each with cold caches."""


def standard_error(times: Sequence[float]) -> float:
    """The standard error of the median, relative to it; from the absolute deviations."""
    middle = statistics.median(times)
    deviation = statistics.median(abs(time - middle) for time in times)
    # 1.4826: from the median deviation to sigma; 1.2533: from the mean's error to the median's.
    return 1.4826 * 1.2533 * deviation / max(middle, 1e-9) / math.sqrt(len(times))


@dataclass(frozen=True)
class RaceRules:
    """Rules for the duration of a race, and for dropping candidates."""

    warm: int = 2
    """Calls of each candidate that are not counted."""
    first: int = 3
    """Calls of each candidate before it may be dropped as `hopeless`."""
    slice_us: float = 4000.0
    """Approximate microseconds of one turn."""
    calls_per_turn: int = 20
    """Maximum of calls in one turn."""
    enough: int = 8
    """Minimum of turns of each remaining candidate."""
    rounds: int = 24
    hopeless: float = 1.3
    """A candidate is dropped when its fastest call takes this many times the best median."""
    beaten: float = 1.05
    """The same limit for its fastest turn, once it has had `enough` turns."""
    precision: float = 0.002
    """Standard error of the best median, relative to it, at which the race ends."""
    seconds: float = 30.0
    window_s: float = 0.05
    """Seconds of a window of the warm-up, whose time must be steady: clocks rise with work and
    fall under heavy load."""
    longest_warm_up_s: float = 1.5
    steady: float = 0.005
    """The warm-up ends when three successive windows differ by less than this share."""


@dataclass
class RaceCandidate:
    """One candidate of a race."""

    samples: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    """The median of each turn."""
    is_out: bool = False

    def take(self, samples: Sequence[float]) -> None:
        """Add the calls of one turn."""
        self.samples += samples
        self.turns.append(statistics.median(samples))

    @property
    def median(self) -> float:
        """Microseconds."""
        return statistics.median(self.turns)

    @property
    def error(self) -> float:
        """See `standard_error`."""
        return standard_error(self.turns)


@dataclass(frozen=True)
class Race:
    """One race; `perform` runs it."""

    stopwatch: Stopwatch
    prepare: Callable[[int], None]
    """Makes the following calls run a candidate."""
    call: Callable[[], object]
    clock: Callable[[], float]
    """Seconds."""
    rules: RaceRules = RaceRules()

    def perform(
        self, candidates: Sequence[int], keep: int | None = None
    ) -> Mapping[int, RaceCandidate]:
        """Measure until the fastest candidate is clear; `keep` is never dropped."""
        rules, ends = self.rules, self.clock() + self.rules.seconds
        self._warm_up(candidates[0] if keep is None else keep)
        runners = {candidate: RaceCandidate() for candidate in candidates}
        for candidate, runner in runners.items():
            self._run(candidate, rules.warm)
            runner.take(self._run(candidate, rules.first))
        for number in range(rules.rounds):
            alive = self._survivors(runners, keep)
            if self._is_decided(runners, alive) or self.clock() > ends:
                break
            # Turns begin with another candidate in each round, so that none always follows the same
            # one.
            at = number % len(alive)
            for candidate in (*alive[at:], *alive[:at]):
                runner = runners[candidate]
                runner.take(self._run(candidate, self._count(runner.median)))
        # The last round may have beaten some more, and the result says who is left.
        self._survivors(runners, keep)
        return runners

    def _warm_up(self, candidate: int) -> None:
        """Call the candidate until its time is steady: a rising clock would favour later ones."""
        rules, ends = self.rules, self.clock() + self.rules.longest_warm_up_s
        self.prepare(candidate)
        median = statistics.median(self.stopwatch.time(self.call, rules.first))
        windows: list[float] = []
        while self.clock() < ends:
            turns: list[float] = []
            window_ends = self.clock() + rules.window_s
            while not turns or self.clock() < window_ends:
                median = statistics.median(self.stopwatch.time(self.call, self._count(median)))
                turns.append(median)
            windows = [*windows[-2:], statistics.median(turns)]
            if len(windows) > 2 and max(windows) <= min(windows) * (1 + rules.steady):  # noqa: PLR2004
                return

    def _count(self, microseconds: float) -> int:
        """Number of calls of one turn."""
        # A time of 0, by a coarse clock, must not be divided by.
        count = round(self.rules.slice_us / max(microseconds, 0.1))
        return min(max(count, 1), self.rules.calls_per_turn)

    def _run(self, candidate: int, count: int) -> Sequence[float]:
        self.prepare(candidate)
        return self.stopwatch.time(self.call, count)

    def _survivors(self, runners: Mapping[int, RaceCandidate], keep: int | None) -> list[int]:
        alive = [runner for runner in runners.values() if not runner.is_out]
        best = min((runner.median for runner in alive), default=0.0)
        for candidate, runner in runners.items():
            is_known = len(runner.turns) >= self.rules.enough
            limit = self.rules.beaten if is_known else self.rules.hopeless
            # The fastest: what is slow once may be the machine's doing.
            fastest = min(runner.turns if is_known else runner.samples)
            if candidate != keep and fastest > limit * best:
                runner.is_out = True
        return [candidate for candidate, runner in runners.items() if not runner.is_out]

    def _is_decided(self, runners: Mapping[int, RaceCandidate], alive: Sequence[int]) -> bool:
        if any(len(runners[candidate].turns) < self.rules.enough for candidate in alive):
            return False
        best = min(alive, key=lambda candidate: runners[candidate].median)
        return runners[best].error <= self.rules.precision
