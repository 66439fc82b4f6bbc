"""Processes that measure: one for each device, as long as there are jobs."""

from __future__ import annotations

import json
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.run import Done, Runner
from kbuild.tune.devices import Device, command, environment, no_torch, parsed
from kbuild.tune.jobs import Job
from kbuild.tune.journal import Journal

_TAIL = 6
_PATIENCE = 3
"""Processes that end without a result, one after another, before it is given up."""
_ASKED = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""Signals that nobody but a user sends."""
Heard = Callable[[Device, Job, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Setting:
    """What the processes of one tuning have in common."""

    runner: Runner
    python: Path
    variant: Path
    namespace: str
    root: Path
    """The project, where its own functions are looked for."""
    logs: Path
    ends: float = math.inf
    """When no more job starts, in the seconds of `clock`."""
    clock: Callable[[], float] = time.monotonic


@dataclass
class Crew:
    """Measures jobs on devices of one model."""

    setting: Setting
    devices: Sequence[Device]
    journal: Journal
    heard: Heard
    """Told each time that a job begins with a candidate, or is done."""
    _queue: deque[Job] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def measure(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Measure what the journal does not know yet; those that time was too short for.

        Raises:
            ToolchainError: the variant cannot be loaded, or processes end without a result.
        """
        self._queue.extend(job for job in jobs if self.journal.outcome(job.id) is None)
        count = min(len(self.devices), len(self._queue))
        if count:
            with ThreadPoolExecutor(count) as pool:
                try:
                    list(pool.map(self._serve, self.devices[:count]))
                except BaseException:
                    self._queue.clear()
                    self.setting.runner.stop()
                    raise
        return tuple(job for job in jobs if self.journal.outcome(job.id) is None)

    def _serve(self, device: Device) -> None:
        failures = 0
        while self._left() > 0 and (batch := self._batch()):
            shift = _Shift(self, device, {job.id: job for job in batch})
            done = shift.perform()
            missing = [job for job in batch if self.journal.outcome(job.id) is None]
            if self._left() > 0 and missing:
                failures = 0 if shift.has_progress else failures + 1
                if failures >= _PATIENCE:
                    raise _given_up(done, device)
            with self._lock:
                self._queue.extendleft(reversed(missing))
            if not missing:
                failures = 0

    def _left(self) -> float:
        return self.setting.ends - self.setting.clock()

    def _batch(self) -> list[Job]:
        """Some of the jobs: all for one device, ever fewer for several, so that none waits."""
        with self._lock:
            share = len(self._queue) / (2 * len(self.devices)) if len(self.devices) > 1 else 0
            count = math.ceil(share) or len(self._queue)
            return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]


@dataclass
class _Shift:
    """One process on one device."""

    crew: Crew
    device: Device
    jobs: Mapping[str, Job]
    has_progress: bool = False
    last: tuple[str, int | None] | None = None
    """The job and the candidate that it has in hand."""

    def perform(self) -> Done:
        """Run it to its end."""
        setting = self.crew.setting
        log = setting.logs / f"{self.device.id.replace(':', '-')}.txt"
        done = setting.runner.run(
            command(setting.python, "measure"),
            cwd=setting.root,
            env=environment(),
            log=log,
            listen=self._hear,
            stdin="".join(f"{json.dumps(line)}\n" for line in self._lines()),
        )
        if self.last is not None and -done.returncode not in _ASKED:
            self._blame(*self.last, _end(done))
        return done

    def _lines(self) -> list[dict[str, Any]]:
        setting, journal = self.crew.setting, self.crew.journal
        left = setting.ends - setting.clock()
        head = {
            "variant": str(setting.variant),
            "namespace": setting.namespace,
            "device": self.device.id,
            "root": str(setting.root),
            "seconds": min(left, 1e9),
        }
        jobs = []
        for job in self.jobs.values():
            crashed = journal.crashed(job.id)
            content = job.content()
            content["candidates"] = [one for one in content["candidates"] if one not in crashed]
            jobs.append({**content, "id": job.id})
        return [head, *jobs]

    def _hear(self, line: str) -> None:
        said = parsed(line)
        if "unloadable" in said:
            raise ToolchainError(
                f"`{self.crew.setting.variant.name}` cannot be loaded: {said['unloadable']}",
                hint="`kbuild check-builds` says more",
            )
        if "lacking" in said:
            raise no_torch(self.crew.setting.python)
        if "doing" in said:
            self.last = said["doing"], said["candidate"]
        elif "done" in said:
            self.last, self.has_progress = None, True
            self.crew.journal.add(said)
        elif "broken" in said and self.last is not None:
            last, self.last = self.last, None
            self._blame(*last, said["reason"])
        job = self.jobs.get(str(said.get("doing") or said.get("done") or ""))
        if job is not None:
            self.crew.heard(self.device, job, said)

    def _blame(self, job: str, candidate: int | None, reason: str) -> None:
        """A candidate, or the inputs, ended the process or broke the device."""
        self.has_progress = True
        if candidate is None:
            self.crew.journal.add({"done": job, "error": reason})
        else:
            line = {"crashed": job, "candidate": candidate, "reason": reason}
            self.crew.journal.add(line)


def _end(done: Done) -> str:
    if done.returncode < 0:
        return f"it ended the process with signal {-done.returncode}"
    if "Timeout (" in done.output:
        return "it hung"
    return f"it ended the process with exit code {done.returncode}"


def _given_up(done: Done, device: Device) -> ToolchainError:
    words = [line for line in done.output.splitlines() if line and not parsed(line)]
    tail = "".join(f"\n    {line}" for line in words[-_TAIL:])
    return ToolchainError(
        f"processes on {device.id} end without a result (exit code {done.returncode}){tail}",
        hint=f"the command was: {done.command}",
    )
