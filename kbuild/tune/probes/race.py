"""Timing candidates against each other: interleaved, so that a drifting clock hits all alike."""

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
        ...


@dataclass(frozen=True)
class Rules:
    """How long is measured, and when a candidate is given up."""

    warm: int = 2
    """Calls that are not counted, of each candidate."""
    first: int = 3
    """Calls after which a candidate may be hopeless."""
    slice_us: float = 4000.0
    """Time of one turn, roughly."""
    turn: int = 20
    """Most calls of one turn."""
    enough: int = 24
    """Fewest calls of a candidate that may win."""
    rounds: int = 30
    hopeless: float = 1.3
    """Given up when its fastest call takes this much longer than the best one's median does."""
    beaten: float = 1.05
    """The same, once `enough` calls were measured."""
    precision: float = 0.004
    """Wanted standard error of the best median, relative to it."""
    seconds: float = 30.0
    """Longest time for one race."""


@dataclass
class Runner:
    """One candidate of a race."""

    samples: list[float] = field(default_factory=list)
    is_out: bool = False

    @property
    def median(self) -> float:
        """Microseconds."""
        return statistics.median(self.samples)

    @property
    def error(self) -> float:
        """The median's standard error, relative to it; estimated from the absolute deviations."""
        middle = self.median
        deviation = statistics.median(abs(one - middle) for one in self.samples)
        # 1.4826: from the median deviation to sigma; 1.2533: from the mean's error to the median's.
        return 1.4826 * 1.2533 * deviation / max(middle, 1e-9) / math.sqrt(len(self.samples))


@dataclass(frozen=True)
class Race:
    """One race; `perform` runs it."""

    stopwatch: Stopwatch
    prepare: Callable[[int], None]
    """Makes the next calls run a candidate."""
    call: Callable[[], object]
    clock: Callable[[], float]
    """Seconds."""
    rules: Rules = Rules()

    def perform(self, candidates: Sequence[int], keep: int | None = None) -> Mapping[int, Runner]:
        """Measure until it is clear which is the fastest.

        Args:
            candidates: what takes part, in any order.
            keep: the one that is measured to the end even when it is slow.
        """
        rules, ends = self.rules, self.clock() + self.rules.seconds
        runners = {candidate: Runner() for candidate in candidates}
        for candidate, runner in runners.items():
            self._run(candidate, rules.warm)
            runner.samples += self._run(candidate, rules.first)
        for number in range(rules.rounds):
            alive = self._survivors(runners, keep)
            if self._is_decided(runners, alive) or self.clock() > ends:
                break
            at = number % len(alive)
            for candidate in (*alive[at:], *alive[:at]):
                runner = runners[candidate]
                count = round(rules.slice_us / max(runner.median, 0.1))
                runner.samples += self._run(candidate, min(max(count, 1), rules.turn))
        self._survivors(runners, keep)
        return runners

    def _run(self, candidate: int, count: int) -> Sequence[float]:
        self.prepare(candidate)
        return self.stopwatch.time(self.call, count)

    def _survivors(self, runners: Mapping[int, Runner], keep: int | None) -> list[int]:
        alive = [runner for runner in runners.values() if not runner.is_out]
        best = min((runner.median for runner in alive), default=0.0)
        for candidate, runner in runners.items():
            is_known = len(runner.samples) >= self.rules.enough
            limit = self.rules.beaten if is_known else self.rules.hopeless
            if candidate != keep and min(runner.samples) > limit * best:
                runner.is_out = True
        return [candidate for candidate, runner in runners.items() if not runner.is_out]

    def _is_decided(self, runners: Mapping[int, Runner], alive: Sequence[int]) -> bool:
        if any(len(runners[one].samples) < self.rules.enough for one in alive):
            return False
        best = min(alive, key=lambda one: runners[one].median)
        return len(alive) == 1 or runners[best].error <= self.rules.precision
