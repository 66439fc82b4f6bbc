"""Asking a busy Hub again: waiting as it asks, longer each time, not for ever."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kbuild.hub.remote import Busy

T = TypeVar("T")


def _silent(_: str) -> None:
    """Nobody is told."""


@dataclass
class Patience:
    """The door to time."""

    tries: int = 8
    """How often in a row something may fail."""
    first: float = 1.0
    """Seconds before the second try; doubled each time, and up to as much again by chance."""
    longest: float = 320.0
    """Seconds of one wait; the Hub counts requests over five minutes."""
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = _silent
    chance: random.Random = field(default_factory=random.Random)

    def persist(self, call: Callable[[], T]) -> T:
        """Call until it works; for what may be repeated without harm.

        Raises:
            Busy: it never did.
        """
        for failures in range(1, self.tries):
            try:
                return call()
            except Busy as busy:
                self.wait(busy, failures)
        return call()

    def wait(self, busy: Busy, failures: int) -> None:
        """Wait after so many failures in a row, at least as long as the Hub asks.

        Raises:
            Busy: the one that was given, when that would take too long.
        """
        if failures >= self.tries or (busy.wait or 0) > self.longest:
            raise busy
        spread = 1 + self.chance.random()
        own = min(self.first * 2 ** (failures - 1), self.longest / 2) * spread
        seconds = own if busy.wait is None else busy.wait + min(own, self.first * spread)
        self.say(f"{busy.message}; trying again in {seconds:.0f} s")
        self.sleep(seconds)
