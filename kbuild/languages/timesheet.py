"""What workers were at, and when, in the run's log of units."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kbuild.build.unit.log import append
from kbuild.languages.conversation import Conversation
from kbuild.languages.refusals import label
from kbuild.languages.unit import Unit


@dataclass
class Turn:
    """One compilation that is under way."""

    is_made: bool = True
    """False when the worker was told that the kernel is there already."""
    is_refused: bool = True
    """Until it is done."""


@dataclass(frozen=True)
class Timesheet:
    """One run's."""

    log: str
    """Path of the log; see `kbuild.build.units`."""

    @contextmanager
    def turn(self, unit: Unit, variant: str, worker: Conversation) -> Iterator[Turn]:
        """Meanwhile a worker compiles for a unit."""
        turn, start, before = Turn(), time.time(), worker.cpu
        try:
            yield turn
        finally:
            user, system = (max(0.0, b - a) for a, b in zip(before, worker.cpu, strict=True))
            facts = {"user": user, "system": system, "peak": worker.peak}
            self._write(unit, variant, start, turn, facts)

    def found(self, unit: Unit, variant: str) -> None:
        """A unit's image was there before."""
        turn = Turn(is_made=False, is_refused=False)
        self._write(unit, variant, time.time(), turn, {})

    def _write(
        self, unit: Unit, variant: str, start: float, turn: Turn, facts: dict[str, float | int]
    ) -> None:
        record = {
            "unit": label(unit) + ("" if unit.aligned else " (any alignment)"),
            "variant": variant,
            "language": unit.language,
            "start": start,
            "end": time.time(),
            "status": int(turn.is_refused),
            "cache": "miss" if turn.is_made or turn.is_refused else "hit",
            "image": True,
            **facts,
        }
        with suppress(OSError):  # the report of a build is not worth the build
            append(self.log, record)
