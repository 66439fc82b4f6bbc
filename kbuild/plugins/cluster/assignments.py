"""Units of work, and the choice of a worker for each: those that wait, and what workers are like.

A unit is a value. Its key covers everything that its outputs follow from, so that it may run
anywhere, and more than once.

It knows nothing of Dask: `ClusterExecutor` sends what is decided here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

ATTEMPTS = 3
"""Attempts on workers before a unit is left to this machine."""


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


ResultCallback = Callable[[UnitResult], None]


@dataclass
class ClusterWorker:
    """One worker as the machine that builds knows it."""

    address: str
    name: str
    slots: int
    """Processors."""
    memory: int = 0
    """MiB for what it runs; 0 when it is not known."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """GPUs by model."""
    is_known: bool = False
    """True once the worker has proven to run the same kbuild."""
    excluded: str = ""
    """Reason why the worker gets no units; empty if it gets some."""
    jobs: set[str] = field(default_factory=set)
    """Jobs of which it has been given units."""
    refused: dict[str, str] = field(default_factory=dict)
    """Jobs that it cannot do, with reasons."""
    running: int = 0
    """Units that it has in hand."""
    failures: int = 0
    description: Mapping[str, Any] = field(default_factory=dict)
    """The worker's description of itself, see `describe_worker` and `describe_runtime`."""
    absences: int = 0
    """Looks at the list of workers in a row that did not find it."""
    _processors: int = 0
    """Processors of the units in hand; the fields below are of these units, too."""
    _memory: int = 0
    _devices: Counter[str] = field(default_factory=Counter)

    @property
    def is_usable(self) -> bool:
        """True when it gets units."""
        return self.is_known and not self.excluded

    @property
    def has_room(self) -> bool:
        """True when it can take a unit; one waits there for the first that ends."""
        # `<=`: with one unit beyond its processors, a worker need not wait for the next one to
        # arrive.
        return self.is_usable and self._processors <= self.slots

    def fits(self, resources: UnitResources) -> bool:
        """True when the worker has what a unit takes, whatever else it has in hand."""
        # It has not described itself yet, so its resources may still turn out to suffice.
        if not self.is_known:
            return True
        # A worker that does not know its memory is taken to have enough.
        memory = self.memory or resources.memory
        is_large_enough = resources.processors <= self.slots and resources.memory <= memory
        return is_large_enough and (
            not resources.device or bool(self.devices.get(resources.device))
        )

    def has_room_for(self, resources: UnitResources) -> bool:
        """True when the worker can take a unit beside what it has in hand.

        One unit may wait for processors; memory and GPUs are given only once.
        """
        if not (self.has_room and self.fits(resources)):
            return False
        device, memory = resources.device, self._memory + resources.memory
        if device and self._devices[device] >= self.devices[device]:
            return False
        return not (self.memory and resources.memory) or memory <= self.memory

    def begin(self, unit: WorkUnit) -> None:
        """Count a unit that the worker is given."""
        self._count(unit, 1)

    def end(self, unit: WorkUnit) -> None:
        """Count a unit that the worker has no more."""
        self._count(unit, -1)

    def _count(self, unit: WorkUnit, number: int) -> None:
        taken = unit.resources
        self.running += number
        self._processors += number * taken.processors
        self._memory += number * taken.memory
        self._devices[taken.device] += number


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


_Group = tuple[str, UnitResources]
"""Job and resources."""


class UnitQueue:
    """The units that wait; used by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[_Group, deque[WaitingUnit]] = {}
        """The longest first."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, units: Sequence[WorkUnit], batch: UnitBatch) -> None:
        """Have units wait."""
        groups = {(unit.job, unit.resources) for unit in units}
        for unit in units:
            group = self._waiting.setdefault((unit.job, unit.resources), deque())
            group.append(WaitingUnit(unit, batch))
        for name in groups:
            # The longest first: a long unit that starts last would be waited for alone.
            ordered = sorted(self._waiting[name], key=lambda item: -item.unit.seconds)
            self._waiting[name] = deque(ordered)

    def put_back(self, item: WaitingUnit) -> None:
        """Have a unit wait for another worker, unless it was tried often enough."""
        if item.attempt >= ATTEMPTS:
            item.leave()
        else:
            name = item.unit.job, item.unit.resources
            # First in line, although other units may take longer: it has waited before.
            self._waiting.setdefault(name, deque()).appendleft(item)

    def leave_job(self, job: str) -> None:
        """Leave the units of a job to this machine."""
        self._leave([name for name in self._waiting if name[0] == job])

    def leave_refused(self, workers: Collection[ClusterWorker]) -> None:
        """Leave the units of jobs that each of some workers has refused to this machine."""
        # Without workers, `all` would be true of every job.
        for job in {job for job, _ in self._waiting} if workers else ():
            if all(job in worker.refused for worker in workers):
                self.leave_job(job)

    def leave_all(self) -> None:
        """Leave every unit to this machine."""
        self._leave(list(self._waiting))

    def leave_unfit(self, workers: Collection[ClusterWorker]) -> list[WorkUnit]:
        """Leave those units to this machine that fit on none of the workers."""
        unfit = [
            (job, resources)
            for job, resources in self._waiting
            if not any(worker.fits(resources) and job not in worker.refused for worker in workers)
        ]
        return self._leave(unfit)

    def take(self, worker: ClusterWorker, workers: Collection[ClusterWorker]) -> WaitingUnit | None:
        """The longest unit that a worker has room for, of a job that it knows if there is one.

        Args:
            worker: it has room.
            workers: all of them.
        """
        groups = sorted(
            self._waiting,
            key=lambda name: (name[0] not in worker.jobs, -self._waiting[name][0].unit.seconds),
        )
        for name in groups:
            job, resources = name
            if job in worker.refused or not worker.has_room_for(resources):
                continue
            waiting = self._waiting[name]
            item = next((item for item in waiting if _may_have(worker, item, workers)), None)
            if item is None:
                continue
            waiting.remove(item)
            if not waiting:
                del self._waiting[name]
            return item
        return None

    def _leave(self, groups: Sequence[_Group]) -> list[WorkUnit]:
        items = [item for name in groups for item in self._waiting.pop(name)]
        for item in items:
            item.leave()
        return [item.unit for item in items]


def _may_have(worker: ClusterWorker, item: WaitingUnit, workers: Collection[ClusterWorker]) -> bool:
    """A unit does not go back to a worker that had it, as long as there is another."""
    if worker.address not in item.avoided:
        return True
    return not any(
        other.is_usable
        and other.address not in item.avoided
        and item.unit.job not in other.refused
        and other.fits(item.unit.resources)
        for other in workers
    )


def resources_text(resources: UnitResources) -> str:
    """The resources of a unit, for a message."""
    parts = [f"{resources.processors} processors"] * (resources.processors > 1)
    parts += [f"{resources.memory} MiB of memory"] * bool(resources.memory)
    parts += [resources.device] * bool(resources.device)
    return ", ".join(parts) or "1 processor"


def missing_reason(future: Any) -> str:
    """The reason that a future of Dask has no answer."""
    with suppress(Exception):
        error = future.exception(timeout=1)
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return "the worker was lost"
