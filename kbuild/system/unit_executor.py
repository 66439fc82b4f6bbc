"""Executors of units: this machine with one jobserver and memory budget, or other machines.

A unit is a value. Its key covers everything that its outputs follow from, so that it may run
anywhere, and more than once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from kbuild.system.budget import Run
from kbuild.system.progress import ESTIMATED_FROM

_MINUTES = 120.0
"""Seconds from which on a time is shown in minutes."""


@dataclass(frozen=True)
class UnitResources:
    """Resources that a unit takes while it runs."""

    processors: int = 1
    memory: int = 0
    """MiB; 0 when nothing is known."""
    device: str = ""
    """Model of the GPU that it needs; empty when it needs none."""


@dataclass(frozen=True)
class WorkUnit:
    """The smallest thing that is compiled or checked by itself."""

    key: str
    """Digest of everything that determines the outputs; a cache stores them under it."""
    label: str
    """Text for users."""
    job: str = ""
    """Digest that units of the same project, plan and toolchain share."""
    seconds: float = 0.0
    """Expected duration; 0 if unknown."""
    resources: UnitResources = UnitResources()


@dataclass(frozen=True)
class UnitResult:
    """Outputs or failure of a unit."""

    unit: WorkUnit
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    """Output by name; those that the executor keeps itself are left out."""
    worker: str = ""
    """Name of the worker that ran it; empty on this machine."""
    seconds: float = 0.0
    failure: str = ""
    """Reason why there are no outputs."""


class RemainingTime:
    """Estimate of the remaining time, from the durations of the units that are done."""

    def __init__(self, units: Sequence[WorkUnit], clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._open = {unit.key: unit.seconds or 1.0 for unit in units}
        self._began: float | None = None
        self._done = 0.0

    def text_after(self, unit: WorkUnit) -> str:
        """Estimate of the remaining time after a unit; empty before a third of the work is done.

        The time until the first is left out: it is that of toolchains and configuration.
        """
        seconds = self._open.pop(unit.key, 0.0)
        if self._began is None:
            self._began = self._clock()
            return ""
        self._done += seconds
        rest = sum(self._open.values())
        if not rest or self._done < (self._done + rest) * ESTIMATED_FROM:
            return ""
        left = (self._clock() - self._began) * rest / self._done
        return f"about {left:.0f} s left" if left < _MINUTES else f"about {left / 60:.0f} min left"


ResultCallback = Callable[[UnitResult], None]


class UnitExecutor(Protocol):
    """Runs units. Safe to use from several threads."""

    def execute(self, units: Sequence[WorkUnit], deliver: ResultCallback) -> tuple[WorkUnit, ...]:
        """Run units, and deliver each result in a thread that is the caller's or its own.

        Returns:
            The units that were not run.
        """


class LocalExecutor:
    """Executor on this machine: one thread for each token of the run's jobserver.

    `perform` waits for memory itself, and raises nothing but what ends all.
    """

    def __init__(self, run: Run, perform: Callable[[WorkUnit], UnitResult]) -> None:
        self._run, self._perform = run, perform

    def execute(self, units: Sequence[WorkUnit], deliver: ResultCallback) -> tuple[WorkUnit, ...]:
        """See `UnitExecutor.execute`; units are left when the run ends before.

        The calling thread works with the token that its variant has anyway; others take their own.
        """
        batch = _LocalBatch(self._run, self._perform, units, deliver)
        batch.work()
        return tuple(batch.waiting)


class _LocalBatch:
    """The units of one call."""

    def __init__(
        self,
        run: Run,
        perform: Callable[[WorkUnit], UnitResult],
        units: Sequence[WorkUnit],
        deliver: ResultCallback,
    ) -> None:
        self.waiting = deque(units)
        self._run, self._perform, self._deliver = run, perform, deliver
        self._count = min(len(units), run.budget.jobs)
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    def work(self) -> None:
        threads = [
            threading.Thread(target=self._with_token, name="unit", daemon=True)
            # The calling thread is the first worker.
            for _ in range(1, self._count)
        ]
        for thread in threads:
            thread.start()
        try:
            while self._do_next():
                pass
        except BaseException:
            self._stopped.set()  # nobody waits for what others are at: it may never come
            raise
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _with_token(self) -> None:
        server = self._run.server
        while not self._is_over():
            if server is not None and not server.acquire(self._is_over):
                return
            try:
                if not self._do_next():
                    return
            except BaseException as failure:  # noqa: BLE001 - raised in the calling thread
                self._failure = failure
                self._stopped.set()
                return
            finally:
                if server is not None:
                    server.release()

    def _do_next(self) -> bool:
        if self._stopped.is_set() or self._run.is_ending:
            return False
        try:
            unit = self.waiting.popleft()
        except IndexError:
            return False
        self._deliver(self._perform(unit))
        return True

    def _is_over(self) -> bool:
        return not self.waiting or self._stopped.is_set() or self._run.is_ending
