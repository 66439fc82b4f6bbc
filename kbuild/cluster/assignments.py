"""Which unit goes to which worker: the units that wait, and what is known of each worker.

It knows nothing of Dask: `ClusterExecutor` sends what is decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from kbuild.runtime.unit_executor import UnitResult, WorkUnit

ATTEMPTS = 3
"""How often a unit is given to workers before it is left to this machine."""


@dataclass
class ClusterWorker:
    """One worker as the machine that builds knows it."""

    address: str
    name: str
    slots: int
    is_known: bool = False
    """Whether it has said that it is the same kbuild."""
    excluded: str = ""
    """Why it gets no units; empty when it gets some."""
    jobs: set[str] = field(default_factory=set)
    """Those that it has been given units of."""
    refused: set[str] = field(default_factory=set)
    """Jobs that it cannot do."""
    running: int = 0
    failures: int = 0
    description: Mapping[str, Any] = field(default_factory=dict)
    """What it said of itself, see `describe_worker` and `describe_runtime`."""
    absences: int = 0
    """Looks at the list of workers in a row that did not find it."""

    @property
    def is_usable(self) -> bool:
        """True when it gets units."""
        return self.is_known and not self.excluded

    @property
    def has_room(self) -> bool:
        """True when it can take a unit; one waits there for the first that ends."""
        return self.is_usable and self.running <= self.slots


class UnitBatch:
    """The units of one call."""

    def __init__(self, count: int) -> None:
        self.open = count
        self.results: SimpleQueue[UnitResult | WorkUnit] = SimpleQueue()
        """Results, and units that are left."""


@dataclass(frozen=True)
class WaitingUnit:
    """A unit that no worker has."""

    unit: WorkUnit
    batch: UnitBatch
    attempt: int = 0
    avoided: frozenset[str] = frozenset()
    """Addresses of workers that had it."""

    def leave(self) -> None:
        """Leave the unit to this machine."""
        self.batch.results.put(self.unit)


class UnitQueue:
    """The units that wait; used by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[WaitingUnit]] = {}
        """By job, the longest first."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, units: Sequence[WorkUnit], batch: UnitBatch) -> None:
        """Have units wait."""
        for unit in units:
            self._waiting.setdefault(unit.job, deque()).append(WaitingUnit(unit, batch))
        for job in {unit.job for unit in units}:
            ordered = sorted(self._waiting[job], key=lambda item: -item.unit.seconds)
            self._waiting[job] = deque(ordered)

    def put_back(self, item: WaitingUnit) -> None:
        """Have a unit wait for another worker, unless it was tried often enough."""
        if item.attempt >= ATTEMPTS:
            item.leave()
        else:
            self._waiting.setdefault(item.unit.job, deque()).appendleft(item)

    def leave_job(self, job: str) -> None:
        """Leave the units of a job to this machine."""
        for item in self._waiting.pop(job, ()):
            item.leave()

    def leave_all(self) -> None:
        """Leave every unit to this machine."""
        for job in list(self._waiting):
            self.leave_job(job)

    def take(self, worker: ClusterWorker, workers: Collection[ClusterWorker]) -> WaitingUnit | None:
        """The longest unit for a worker, of a job that it knows if there is one.

        Args:
            worker: it has room.
            workers: all of them.
        """
        jobs = sorted(
            self._waiting,
            key=lambda job: (job not in worker.jobs, -self._waiting[job][0].unit.seconds),
        )
        for job in jobs:
            if job in worker.refused:
                continue
            waiting = self._waiting[job]
            item = next((item for item in waiting if _may_have(worker, item, workers)), None)
            if item is None:
                continue
            waiting.remove(item)
            if not waiting:
                del self._waiting[job]
            return item
        return None


def _may_have(worker: ClusterWorker, item: WaitingUnit, workers: Collection[ClusterWorker]) -> bool:
    """A unit does not go back to a worker that had it, as long as there is another."""
    if worker.address not in item.avoided:
        return True
    return not any(
        other.is_usable and other.address not in item.avoided and item.unit.job not in other.refused
        for other in workers
    )
