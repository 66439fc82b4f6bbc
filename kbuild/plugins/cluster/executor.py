"""Runs units on the workers of a Dask cluster: which unit goes where, and what becomes of workers.

One thread hands out units, the longest first, to workers that have room, and prefers a worker that
has the unit's job configured. A worker takes the next unit as it ends one, so nobody waits for a
slow one. What a worker that dies, hangs or is excluded had in hand goes to others.
"""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from kbuild.plugins.cluster.assignments import (
    ClusterWorker,
    ResultCallback,
    UnitBatch,
    UnitQueue,
    UnitResult,
    WaitingUnit,
    WorkUnit,
    missing_reason,
    resources_text,
)
from kbuild.plugins.cluster.jobs import MachineFacts
from kbuild.plugins.cluster.worker import GPU_PREFIX, METADATA_KEY, describe_worker, make_unit

if TYPE_CHECKING:
    from distributed import Client, Future

_FAILURES = 3
"""Units in a row that fail on a worker before it is excluded."""
_POLL = 1.0
"""Seconds between two looks at the list of workers."""
_ABSENCES = 2
"""Looks in a row without a worker after which it has gone: while a client connects again, Dask's
list is empty."""
_PAUSE = 0.2
_SHOWN_WORKERS = 4
"""Largest number of workers whose load is shown one by one."""
_DESCRIBE_SECONDS = 120.0
_GRACE_SECONDS = 60.0
"""Seconds beyond a unit's time in which a worker configures a job and answers."""


@dataclass(frozen=True)
class ClusterLimits:
    """The time limits on a cluster."""

    unit_seconds: float = 3600.0
    """Seconds for one unit."""
    worker_seconds: float = 30.0
    """Seconds to wait for the first worker, or another one once none is left."""


@dataclass
class _Assignment:
    """A unit that a worker has in hand."""

    unit: WorkUnit
    batch: UnitBatch
    worker: ClusterWorker
    future: Future[Any]
    since: float
    attempt: int


_Event = tuple[str, Any]


class ClusterExecutor:
    """Runs units on a cluster; safe to use from several threads. Close it at the end."""

    def __init__(
        self,
        client: Client,
        facts: MachineFacts,
        say: Callable[[str], None],
        limits: ClusterLimits = ClusterLimits(),
        *,
        is_ending: Callable[[], bool] = lambda: False,
        functions: tuple[Callable[..., Any], Callable[..., Any]] = (describe_worker, make_unit),
        say_refusal: Callable[[str], None] | None = None,
    ) -> None:
        """`functions` run on workers: one describes them, one makes a unit.

        `say_refusal` says which worker cannot do a job; `say` does where it is None.
        """
        self._say_refusal = say_refusal or say
        self._describe, self._make = functions
        self._client, self._facts, self._say, self._limits = client, facts, say, limits
        self._is_ending = is_ending
        self._session = uuid.uuid4().hex
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._waiting = UnitQueue()
        self._assignments: dict[str, _Assignment] = {}
        """Assignments by the key of Dask's future."""
        self._described: dict[str, tuple[ClusterWorker, Future[Any], float]] = {}
        self.workers: dict[str, ClusterWorker] = {}
        self._published: set[str] = set()
        self._is_over = False
        self._last_usable = self._polled = time.monotonic()
        self._thread = threading.Thread(target=self._serve, name="cluster", daemon=True)
        self._thread.start()

    def publish(self, digest: str, data: bytes) -> None:
        """Publish a job or an archive on the scheduler, where workers fetch it, once.

        Raises:
            OSError: the scheduler does not answer.
        """
        if digest not in self._published:
            self._client.set_metadata([METADATA_KEY, self._session, digest], data)
            self._published.add(digest)

    def execute(self, units: Sequence[WorkUnit], deliver: ResultCallback) -> tuple[WorkUnit, ...]:
        """Run units, and deliver each result in a thread that is the caller's or its own.

        Returns:
            The units that no worker could run.
        """
        batch, left = UnitBatch(len(units)), []
        self._events.put(("units", (list(units), batch)))
        while batch.open and not self._is_ending():
            try:
                item = batch.results.get(timeout=_PAUSE)
            except Empty:
                if not self._thread.is_alive():
                    break
                continue
            batch.open -= 1
            if isinstance(item, WorkUnit):
                left.append(item)
            else:
                deliver(item)
        return tuple(left)

    def exclude(self, name: str, reason: str) -> None:
        """Exclude a worker from all further units, and print the reason."""
        self._events.put(("exclude", (name, reason)))

    @property
    def load(self) -> str:
        """The busy processors of each worker, for the display of progress."""
        usable = [worker for worker in list(self.workers.values()) if worker.is_usable]
        loads = [(min(worker.running, worker.slots), worker.slots) for worker in usable]
        if len(usable) <= _SHOWN_WORKERS:
            parts = zip(usable, loads, strict=True)
            return ", ".join(f"{worker.name} {busy}/{slots}" for worker, (busy, slots) in parts)
        busy, slots = (sum(column) for column in zip(*loads, strict=True))
        return f"{len(usable)} workers, {busy} of {slots} processors busy"

    def close(self) -> None:
        """Cancel units that workers have not begun, and remove the files published for them."""
        self._events.put(("close", None))
        self._thread.join(timeout=10)
        with suppress(Exception):
            for digest in self._published:
                self._client.set_metadata([METADATA_KEY, self._session, digest], None)
        with suppress(Exception):
            self._client.close(timeout=2)

    def _serve(self) -> None:
        try:
            while not self._is_over:
                self._take_events()
                self._poll()
                self._assign()
        except Exception as error:  # noqa: BLE001 - whatever happens there, this machine can build
            self._give_up(f"the cluster cannot be used any more: {error}")
            while not self._is_over:
                self._take_events()
                self._give_up("")

    def _take_events(self) -> None:
        ended: list[Future[Any]] = []
        try:
            event = self._events.get(timeout=_PAUSE)
            # All that are there are taken: `_settle` gathers their answers in one request.
            while True:
                name, value = event
                if name == "ended":
                    ended.append(value)
                elif name == "units":
                    self._waiting.add(*value)
                elif name == "exclude":
                    for worker in self.workers.values():
                        if worker.name == value[0]:
                            self._exclude(worker, value[1])
                else:
                    self._is_over = True
                    with suppress(Exception):  # the scheduler may have gone
                        self._client.cancel([task.future for task in self._assignments.values()])
                    return
                event = self._events.get_nowait()
        except Empty:
            pass
        if ended:
            self._settle(ended)

    def _settle(self, futures: Sequence[Future[Any]]) -> None:
        """Take the answers of futures that have ended."""
        good = [future for future in futures if future.status == "finished"]
        answers = dict(zip((f.key for f in good), self._client.gather(good), strict=True))
        for future in futures:
            described = self._described.pop(str(future.key), None)
            if described is not None:
                self._meet(described[0], answers.get(future.key), future)
                continue
            task = self._assignments.pop(str(future.key), None)
            if task is None:  # it was taken back
                continue
            task.worker.end(task.unit)
            answer = answers.get(future.key)
            if answer is None:
                self._retry(task, missing_reason(future))
            else:
                self._take_answer(task, answer)

    def _take_answer(self, task: _Assignment, answer: Mapping[str, Any]) -> None:
        worker = task.worker
        if "refusal" in answer:
            job, reason = task.unit.job, str(answer["refusal"])
            if job not in worker.refused:
                worker.refused[job] = reason
                self._say_refusal(f"worker {worker.name} refuses {task.unit.label}: {reason}")
            # A refusal is no attempt: the unit was not compiled.
            self._retry(replace(task, attempt=task.attempt - 1), "")
            self._leave_refused()
        elif "failure" in answer:
            worker.failures += 1
            if worker.failures >= _FAILURES:
                self._exclude(worker, f"{_FAILURES} units in a row failed there")
            if self._can_retry(task):
                self._retry(task, "")
            else:
                failure = str(answer["failure"])
                result = UnitResult(task.unit, worker=worker.name, failure=failure)
                task.batch.results.put(result)
        else:
            worker.failures = 0
            outputs = {name: zlib.decompress(part) for name, part in answer["outputs"].items()}
            seconds = float(answer["seconds"])
            task.batch.results.put(UnitResult(task.unit, outputs, worker.name, seconds))

    def _leave_refused(self) -> None:
        """Leave units to this machine that every worker has refused."""
        usable = [worker for worker in self.workers.values() if not worker.excluded]
        self._waiting.leave_refused(usable)

    def _can_retry(self, task: _Assignment) -> bool:
        """True when a unit that failed may succeed on another worker."""
        others = [worker for worker in self.workers.values() if worker is not task.worker]
        return task.attempt == 1 and any(worker.is_usable for worker in others)

    def _retry(self, task: _Assignment, reason: str) -> None:
        if reason:
            self._say(f"{task.unit.label} is given to another worker: {reason}")
        # Another worker first: what failed here may be a fault of this machine.
        avoided = frozenset({task.worker.address})
        self._waiting.put_back(WaitingUnit(task.unit, task.batch, task.attempt, avoided))

    def _meet(
        self, worker: ClusterWorker, answer: Mapping[str, Any] | None, future: Future[Any]
    ) -> None:
        """Accept or exclude a new worker, by its description of itself."""
        if answer is None:
            self._exclude(worker, f"it cannot run kbuild: {missing_reason(future)}")
            return
        reason = self._facts.difference(MachineFacts(**answer["facts"])) or answer.get("refusal")
        if reason:
            self._exclude(worker, reason)
            return
        worker.memory = worker.memory or int(answer.get("memory", 0))
        worker.description, worker.slots = answer, int(answer.get("slots", worker.slots))
        worker.is_known = True

    def _exclude(self, worker: ClusterWorker, reason: str) -> None:
        if not worker.excluded:
            worker.excluded = reason
            self._say(f"worker {worker.name} is not used: {reason}")
            self._take_back(worker)

    def _take_back(self, worker: ClusterWorker) -> None:
        """Give what a worker has in hand to others."""
        for key, task in list(self._assignments.items()):
            if task.worker is worker:
                # First: the canceled future ends as well, and must find nothing to settle.
                del self._assignments[key]
                worker.end(task.unit)
                task.future.cancel()
                # It is no fault of the unit, but one that kills its workers has to end.
                self._retry(task, "")

    def _poll(self) -> None:
        """Update the list of workers: new ones, lost ones, and those that take too long."""
        now = time.monotonic()
        # The scheduler's answer lists every worker. Without one, a build waits for the first.
        if now - self._polled < max(_POLL, len(self.workers) / 100) and self.workers:
            return
        self._polled = now
        present = self._client.scheduler_info().get("workers")
        if present is None:
            raise OSError("the scheduler has gone")
        for address, facts in present.items():
            if address not in self.workers:
                self._welcome(address, facts)
        for address, worker in list(self.workers.items()):
            worker.absences = 0 if address in present else worker.absences + 1
            if worker.absences < _ABSENCES:
                continue
            del self.workers[address]
            had = worker.running
            self._take_back(worker)
            units = f"; its {had} units go to others" if had else ""
            self._say(f"worker {worker.name} has gone{units}")
        self._exclude_silent(now)
        usable = [worker for worker in self.workers.values() if not worker.excluded]
        if usable:
            self._last_usable = now
            self._waiting.leave_refused(usable)
            self._leave_unfit(usable)
        elif now - self._last_usable > self._limits.worker_seconds and self._waiting:
            waiting = len(self._waiting)
            self._give_up(f"the cluster has no worker: {waiting} units are left")

    def _leave_unfit(self, workers: Sequence[ClusterWorker]) -> None:
        """Leave to this machine what no worker has the memory, the processors or the GPU for."""
        unfit = self._waiting.leave_unfit(workers)
        if unfit:
            count = f"{len(unfit)} units fit" if len(unfit) > 1 else "one unit fits"
            left = "are left" if len(unfit) > 1 else "is left"
            takes = f"{unfit[0].label} takes {resources_text(unfit[0].resources)}"
            self._say(f"{count} on no worker and {left} to this machine: {takes}")

    def _exclude_silent(self, now: float) -> None:
        """Exclude workers that take too long."""
        for task in list(self._assignments.values()):
            # A worker ends a run by itself after twice the time of a unit, see `WorkerState.run`.
            if now - task.since > 2 * self._limits.unit_seconds + _GRACE_SECONDS:
                self._exclude(task.worker, f"it did not answer about {task.unit.label} in time")
        for worker, _, since in list(self._described.values()):
            if now - since > _DESCRIBE_SECONDS:
                self._exclude(worker, "it does not answer")

    def _welcome(self, address: str, facts: Mapping[str, Any]) -> None:
        resources: Mapping[str, float] = facts.get("resources") or {}
        gpus = {name: number for name, number in resources.items() if name.startswith(GPU_PREFIX)}
        devices = {name.removeprefix(GPU_PREFIX): int(number) for name, number in gpus.items()}
        name, memory = str(facts.get("name", address)), int(resources.get("memory", 0))
        worker = ClusterWorker(address, name, int(facts["nthreads"]), memory, devices)
        self.workers[address] = worker
        # Dask calls back in its own thread; only `_serve`'s thread changes the state.
        future = self._client.submit(self._describe, workers=[address], pure=False)
        self._described[str(future.key)] = (worker, future, time.monotonic())
        future.add_done_callback(lambda done: self._events.put(("ended", done)))

    def _assign(self) -> None:
        """Give every worker that has room the longest unit, of a job that it knows if it can."""
        free = [worker for worker in self.workers.values() if worker.has_room]
        while free and self._waiting:
            free.sort(key=lambda worker: worker.running / worker.slots)
            given = [worker for worker in free if self._give(worker)]
            free = [worker for worker in given if worker.has_room]

    def _give(self, worker: ClusterWorker) -> bool:
        """Give a worker one unit; False when there is none for it."""
        item = self._waiting.take(worker, self.workers.values())
        if item is not None:
            self._submit(worker, item)
        return item is not None

    def _submit(self, worker: ClusterWorker, item: WaitingUnit) -> None:
        unit, seconds = item.unit, self._limits.unit_seconds
        arguments = (self._session, unit.job, unit.key, seconds)
        # `pure=False`: Dask must not answer with an earlier result of the same arguments.
        future = self._client.submit(self._make, *arguments, workers=[worker.address], pure=False)
        worker.begin(unit)
        worker.jobs.add(unit.job)
        now = time.monotonic()
        task = _Assignment(unit, item.batch, worker, future, now, item.attempt + 1)
        self._assignments[str(future.key)] = task
        future.add_done_callback(lambda done: self._events.put(("ended", done)))

    def _give_up(self, reason: str) -> None:
        """Leave everything that waits to this machine."""
        if reason:
            self._say(reason)
        self._waiting.leave_all()
        tasks = list(self._assignments.values())
        self._assignments.clear()
        for task in tasks:
            task.batch.results.put(task.unit)
