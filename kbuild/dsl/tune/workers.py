"""Distributes measurements to worker processes on the devices of one model."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kbuild.dsl.tune.host import AvailableDevices, Device
from kbuild.dsl.tune.jobs import RaceJob
from kbuild.dsl.tune.results import MAX_REPETITIONS, REPETITIONS, Journal
from kbuild.system.errors import ToolchainError

_MAX_FAILURES = 3
"""Workers of a device that end without a result, in succession, before it is given up."""
_AS_FAST = 2
"""A worker leaves a job to another one whose last job took at most this many times as long."""
_USER_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""Signals that only a user sends; they are not counted as a candidate's crash."""
_CONTINUE = "run the same command again to continue"
JobListener = Callable[[Device, RaceJob, Mapping[str, Any]], None]


class ProbeTransport(Protocol):
    """Starts workers on local or remote devices and carries messages; see `probes.host`."""

    @property
    def interpreter(self) -> str:
        """The interpreter of the workers, for messages."""

    def start(self, settings: Mapping[str, Any]) -> str:
        """Start a worker with these settings and return its name."""

    def send(self, command: Mapping[str, Any]) -> None:
        """Send `{"to": NAME, "job": {...}}` or `{"stop": NAME}`."""

    def receive(self) -> Mapping[str, Any]:
        """Wait for the next message of a worker; `{"lost": NAME, "reason": "..."}` if unreachable.

        Raises:
            ToolchainError: no worker can send messages any more.
        """


class ProbeSource(Protocol):
    """Provides devices and connections to workers on them."""

    def devices(self) -> AvailableDevices:
        """Return the devices, whose ids are settings for `start`.

        Raises:
            ToolchainError: they cannot be listed.
        """

    def connect(self) -> ProbeTransport:
        """Return a connection for one tuning; several may be used at the same time."""


@dataclass(frozen=True)
class WorkerSettings:
    """The settings that all workers of one tuning share."""

    host: ProbeTransport
    variant: Path
    namespace: str
    root: Path
    """The project's folder, from which its own functions are imported."""
    ends: float = math.inf
    """Time of `clock` in seconds after which no measurement starts."""
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda _: None
    """Called with a message about a device that is not used any more."""


@dataclass
class DeviceWorker:
    """A worker process on a device."""

    name: str
    device: Device
    failures: int = 0
    """Workers before it on this device, in succession, that ended without a result."""
    job: RaceJob | None = None
    repetition: int = 0
    """Number of its measurement among those of the job."""
    candidate: int | None = None
    has_begun: bool = False
    """True once it has reported the beginning of the job."""
    seconds: float = 0.0
    """Seconds of its last job."""
    measured: set[str] = field(default_factory=set)
    """Ids of its jobs: a process measures a call once, since only other processes add
    information."""


class DeviceWorkers:
    """Measures jobs on the devices of one model."""

    def __init__(
        self,
        setting: WorkerSettings,
        devices: Sequence[Device],
        journal: Journal,
        listener: JobListener,
    ) -> None:
        """`listener` is called when a job begins with a candidate, and when it is done."""
        self.journal = journal
        self.devices = list(devices)
        self._setting, self._listener = setting, listener
        self._workers: dict[str, DeviceWorker] = {}
        self._jobs: dict[str, RaceJob] = {}

    def measure(self, jobs: Sequence[RaceJob]) -> tuple[RaceJob, ...]:
        """Measure jobs that the journal lacks; return those that the time was too short for.

        Raises:
            ToolchainError: no device is left on which the variant can be loaded and run.
        """
        self._jobs = {job.id: job for job in jobs if not self.journal.is_complete(job.id)}
        if self._jobs and not self.devices:
            raise ToolchainError("no device is left", hint=_CONTINUE)
        try:
            self._start_idle()
            while self._jobs and self._workers:
                answer = self._setting.host.receive()
                names = (answer.get(key) for key in ("worker", "ended", "lost"))
                worker = self._workers.get(str(next(filter(None, names), "")))
                if worker is not None:
                    self._take(worker, answer)
        finally:
            for name in self._workers:
                self._setting.host.send({"stop": name})
            self._workers.clear()
        return tuple(job for job in jobs if not self.journal.is_complete(job.id))

    def _start_idle(self) -> None:
        """Start a worker on each device that has none, as long as there are jobs for them."""
        busy = {worker.device.id for worker in self._workers.values()}
        for device in [device for device in self.devices if device.id not in busy]:
            if any(map(self._next_repetitions, self._jobs.values())):
                self._start(device)

    def _start(self, device: Device, failures: int = 0) -> None:
        setting = self._setting
        name = setting.host.start(
            {
                "variant": str(setting.variant),
                "namespace": setting.namespace,
                "device": device.id,
                "root": str(setting.root),
            }
        )
        worker = self._workers[name] = DeviceWorker(name, device, failures)
        self._deal(worker)

    def _next_repetitions(self, job: RaceJob) -> list[int]:
        """The numbers of a job's measurements that may begin now, each in another process."""
        done = self.journal.repetitions(job.id)
        held = {worker.repetition for worker in self._workers.values() if worker.job is job}
        if not done:  # the first process finds out which candidates the others measure
            return [] if held else [0]
        # Whether a job needs more than the usual number is known once that many are done. All
        # devices share these: one after the other, they would be what a tuning waits for.
        limit = REPETITIONS if len(done) < REPETITIONS else MAX_REPETITIONS
        return [number for number in range(limit) if number not in done | held]

    def _deal(self, worker: DeviceWorker) -> None:
        """Send the worker a job; restart or stop it if it cannot take one of the remaining jobs."""
        free = [
            (job, next_) for job in self._jobs.values() if (next_ := self._next_repetitions(job))
        ]
        fresh = [(job, next_) for job, next_ in free if job.id not in worker.measured]
        is_over = self._setting.clock() >= self._setting.ends
        # A job that this process has measured needs another process.
        if is_over or (free and not fresh and not self._is_soon_taken(worker, free)):
            self._setting.host.send({"stop": worker.name})
            del self._workers[worker.name]
            if not is_over:
                self._start(worker.device, worker.failures)
        elif fresh:
            # The longest first, so that no device is left with one at the end.
            job, (number, *_) = min(fresh, key=lambda entry: (entry[1][0], -entry[0].case.bytes))
            worker.job, worker.repetition = job, number
            worker.candidate, worker.has_begun = None, False
            worker.measured.add(job.id)
            content = job.content()
            content["candidates"] = self.journal.contenders(job.id, content["candidates"])
            content |= {"id": job.id, "repetition": number}
            self._setting.host.send({"to": worker.name, "job": content})

    def _is_soon_taken(
        self, worker: DeviceWorker, free: Sequence[tuple[RaceJob, Sequence[int]]]
    ) -> bool:
        """True if other workers, about as fast, can soon do all of these measurements."""
        others = [
            other
            for other in self._workers.values()
            if other.job is not None
            and other.seconds <= _AS_FAST * worker.seconds
            and any(job.id not in other.measured for job, _ in free)
        ]
        return len(others) >= sum(len(numbers) for _, numbers in free)

    def _take(self, worker: DeviceWorker, answer: Mapping[str, Any]) -> None:
        if "unloadable" in answer:
            message = f"`{self._setting.variant.name}` cannot be loaded: {answer['unloadable']}"
            self._give_up(worker, ToolchainError(message, hint="`kbuild check --builds` says more"))
            return
        if "lost" in answer:
            message = f"{worker.device.id} is out of reach: {answer['reason']}"
            self._give_up(worker, ToolchainError(message, hint=_CONTINUE))
            return
        if "ended" in answer:
            self._replace(worker, int(answer["code"]))
            return
        job = worker.job
        if job is None:
            return
        if "doing" in answer:
            worker.candidate, worker.has_begun = answer["candidate"], True
        elif "done" in answer:
            self._finish(worker, answer)
        elif answer.get("broken") == job.id:  # ignore a late message about an earlier job
            self._record_crash(worker, job, str(answer["reason"]))
        self._listener(worker.device, job, answer)
        # A process whose device is broken ends by itself, and is replaced after its `ended`.
        if worker.job is None and "broken" not in answer:
            self._deal_idle()

    def _deal_idle(self) -> None:
        # A copy of the list, since `_deal` adds and removes workers.
        for worker in [worker for worker in self._workers.values() if worker.job is None]:
            self._deal(worker)
        if self._setting.clock() < self._setting.ends:
            self._start_idle()

    def _finish(self, worker: DeviceWorker, record: Mapping[str, Any]) -> None:
        job = str(record["done"])
        self.journal.add({**record, "device": worker.device.uuid or worker.device.id})
        worker.job, worker.failures = None, 0
        worker.seconds = float(record.get("seconds", 0.0))
        if self.journal.is_complete(job):
            self._jobs.pop(job, None)

    def _replace(self, worker: DeviceWorker, code: int) -> None:
        """Start another worker after one that ended, unless too many have failed."""
        if worker.job is not None:
            if worker.has_begun and -code not in _USER_SIGNALS:
                self._record_crash(worker, worker.job, _exit_reason(code))
            else:
                worker.failures += 1
        if worker.failures >= _MAX_FAILURES:
            message = f"processes on {worker.device.id} end without a result"
            hint = f"start {self._setting.host.interpreter} and run the op there"
            self._give_up(worker, ToolchainError(f"{message} ({_exit_reason(code)})", hint=hint))
            return
        del self._workers[worker.name]
        if self._jobs and self._setting.clock() < self._setting.ends:
            self._start(worker.device, worker.failures)
        self._deal_idle()

    def _give_up(self, worker: DeviceWorker, error: ToolchainError) -> None:
        """Stop using a device; others measure the remaining jobs.

        Raises:
            ToolchainError: it was the last device.
        """
        del self._workers[worker.name]
        self.devices.remove(worker.device)
        if self._jobs and not self.devices:
            raise error
        more = "; other devices measure what is left" if self._jobs else ""
        self._setting.say(f"{error.message}{more}")
        self._deal_idle()

    def _record_crash(self, worker: DeviceWorker, job: RaceJob, reason: str) -> None:
        """Record that a candidate, or the inputs, ended the process or broke the device."""
        if worker.candidate is None:
            record = {"done": job.id, "repetition": worker.repetition, "error": reason}
            self._finish(worker, record)
        else:
            record = {"crashed": job.id, "candidate": worker.candidate, "reason": reason}
            self.journal.add(record)
            worker.job, worker.failures = None, 0


def _exit_reason(code: int) -> str:
    if code == -signal.SIGALRM:
        return "it hung"
    if code < 0:
        return f"it ended the process with signal {-code}"
    return f"it ended the process with exit code {code}"
