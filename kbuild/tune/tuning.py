"""One tuning: selects the jobs, measures them in one process per device, and writes the table."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from kbuild import __version__
from kbuild.code_digest import code_digest
from kbuild.errors import IncompleteError, ToolchainError
from kbuild.ops.manifest import OpManifest
from kbuild.ops.model import TuningCase
from kbuild.ops.tuned_tables import TunedTable, write_table
from kbuild.progress import Progress
from kbuild.runtime.files import sha256_of_file
from kbuild.runtime.processes import ProcessResult, Runner
from kbuild.tune.cases import BenchmarkCase
from kbuild.tune.devices import (
    Device,
    parse_answer,
    probe_command,
    probe_environment,
    torch_missing_error,
)
from kbuild.tune.jobs import OpBenchmark, RaceJob, benchmarks_of, jobs_of, tune_functions_digest
from kbuild.tune.results import Journal, KeyResult, RaceOutcome, results_of

_TAIL = 6
_MAX_FAILURES = 3
"""Processes that end without a result, one after another, before it is given up."""
_USER_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""Signals that nobody but a user sends."""
JobListener = Callable[[Device, RaceJob, Mapping[str, Any]], None]


@dataclass(frozen=True)
class WorkerSettings:
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
class DeviceWorkers:
    """Measures jobs on devices of one model."""

    setting: WorkerSettings
    devices: Sequence[Device]
    journal: Journal
    heard: JobListener
    """Told each time that a job begins with a candidate, or is done."""
    _queue: deque[RaceJob] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def measure(self, jobs: Sequence[RaceJob]) -> tuple[RaceJob, ...]:
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
            shift = _DeviceWorker(self, device, {job.id: job for job in batch})
            done = shift.perform()
            missing = [job for job in batch if self.journal.outcome(job.id) is None]
            if self._left() > 0 and missing:
                failures = 0 if shift.has_progress else failures + 1
                if failures >= _MAX_FAILURES:
                    raise _no_result_error(done, device)
            with self._lock:
                self._queue.extendleft(reversed(missing))
            if not missing:
                failures = 0

    def _left(self) -> float:
        return self.setting.ends - self.setting.clock()

    def _batch(self) -> list[RaceJob]:
        """Some of the jobs: all for one device, ever fewer for several, so that none waits."""
        with self._lock:
            share = len(self._queue) / (2 * len(self.devices)) if len(self.devices) > 1 else 0
            count = math.ceil(share) or len(self._queue)
            return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]


@dataclass
class _DeviceWorker:
    """One process on one device."""

    crew: DeviceWorkers
    device: Device
    jobs: Mapping[str, RaceJob]
    has_progress: bool = False
    last: tuple[str, int | None] | None = None
    """The job and the candidate that it has in hand."""

    def perform(self) -> ProcessResult:
        """Run it to its end."""
        setting = self.crew.setting
        log = setting.logs / f"{self.device.id.replace(':', '-')}.txt"
        done = setting.runner.run(
            probe_command(setting.python, "measure"),
            cwd=setting.root,
            env=probe_environment(),
            log=log,
            listen=self._hear,
            stdin="".join(f"{json.dumps(line)}\n" for line in self._lines()),
        )
        if self.last is not None and -done.returncode not in _USER_SIGNALS:
            self._blame(*self.last, _exit_reason(done))
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
            crashed, content = journal.crashed(job.id), job.content()
            alive = [candidate for candidate in content["candidates"] if candidate not in crashed]
            jobs.append({**content, "candidates": alive, "id": job.id})
        return [head, *jobs]

    def _hear(self, line: str) -> None:
        answer = parse_answer(line)
        if "unloadable" in answer:
            raise ToolchainError(
                f"`{self.crew.setting.variant.name}` cannot be loaded: {answer['unloadable']}",
                hint="`kbuild check-builds` says more",
            )
        if "lacking" in answer:
            raise torch_missing_error(self.crew.setting.python)
        if "doing" in answer:
            self.last = answer["doing"], answer["candidate"]
        elif "done" in answer:
            self.last, self.has_progress = None, True
            self.crew.journal.add(answer)
        elif "broken" in answer and self.last is not None:
            last, self.last = self.last, None
            self._blame(*last, answer["reason"])
        job = self.jobs.get(str(answer.get("doing") or answer.get("done") or ""))
        if job is not None:
            self.crew.heard(self.device, job, answer)

    def _blame(self, job: str, candidate: int | None, reason: str) -> None:
        """A candidate, or the inputs, ended the process or broke the device."""
        self.has_progress = True
        if candidate is None:
            self.crew.journal.add({"done": job, "error": reason})
        else:
            self.crew.journal.add({"crashed": job, "candidate": candidate, "reason": reason})


def _exit_reason(done: ProcessResult) -> str:
    if done.returncode < 0:
        return f"it ended the process with signal {-done.returncode}"
    if "Timeout (" in done.output:
        return "it hung"
    return f"it ended the process with exit code {done.returncode}"


def _no_result_error(done: ProcessResult, device: Device) -> ToolchainError:
    lines = [line for line in done.output.splitlines() if line and not parse_answer(line)]
    tail = "".join(f"\n    {line}" for line in lines[-_TAIL:])
    return ToolchainError(
        f"processes on {device.id} end without a result (exit code {done.returncode}){tail}",
        hint=f"the command was: {done.command}",
    )


_PROBES = Path(__file__).with_name("probes")
_CODE = {".so", ".pyd", ".dylib", ".py"}
"""Files of a variant that make a difference, where it does not say which images it has."""


@dataclass(frozen=True)
class TuneRequest:
    """What is measured, and how."""

    only: tuple[str, ...] = ()
    """Names of ops; all when empty."""
    cases: Mapping[str, tuple[TuningCase, ...]] = field(default_factory=dict)
    """Op -> cases instead of those of its `tune` table."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """Fields of `probes.race.Rules` that are not the usual ones."""


@dataclass(frozen=True)
class TuneResult:
    """What a tuning led to on one GPU model."""

    device: Device
    results: tuple[KeyResult, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Calls that were not measured, with the reason."""
    unmeasured: int = 0
    """Jobs that time was too short for."""
    path: str = ""
    """The table, relative to the project; empty when nothing was measured."""

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "device": self.device.name,
            "arch": self.device.arch,
            "table": self.path or None,
            "results": [result.to_json() for result in self.results],
            "left_out": [{"case": case, "reason": reason} for case, reason in self.left_out],
            "unmeasured": self.unmeasured,
        }


@dataclass(frozen=True)
class TuningRun:
    """The candidates of one variant on the devices of one model."""

    setting: WorkerSettings
    description: OpManifest
    devices: Sequence[Device]
    wish: TuneRequest
    torch: str
    progress: Progress
    journals: Path
    """Folder of what was measured so far."""

    def perform(self) -> TuneResult:
        """Measure, and write the table.

        Raises:
            ToolchainError: the variant cannot be run.
        """
        device = self.devices[0]
        works = benchmarks_of(self.description, device, self.wish.only, self.wish.cases)
        journal = Journal(self.journals / f"{self._name(device)}.jsonl")
        measured: list[tuple[RaceJob, RaceOutcome]] = []
        left_out = [(_case_text(w, case), reason) for w in works for case, reason in w.left_out]
        winners: dict[tuple[BenchmarkCase, int], int] = {}
        unmeasured = 0
        for launch in range(max((len(work.op.launches) for work in works), default=0)):
            entries = list(self._jobs(works, launch, winners))
            jobs = [job for job in entries if isinstance(job, RaceJob)]
            left_out += [entry for entry in entries if not isinstance(entry, RaceJob)]
            known = sum(journal.outcome(job.id) is not None for job in jobs)
            heard = _TuneProgress(self.progress, len(jobs), known)
            crew = DeviceWorkers(self.setting, self.devices, journal, heard)
            unmeasured += len(crew.measure(jobs))
            done = [(job, outcome) for job in jobs if (outcome := journal.outcome(job.id))]
            measured += done
            for result in results_of(done):
                if result.winner is not None:
                    winners |= {(job.case, launch): result.winner for job, _ in result.measured}
        results = results_of(measured)
        path = self._write(results)
        return TuneResult(device, results, tuple(dict.fromkeys(left_out)), unmeasured, path)

    def _jobs(
        self,
        works: Sequence[OpBenchmark],
        launch: int,
        winners: Mapping[tuple[BenchmarkCase, int], int],
    ) -> Iterator[RaceJob | tuple[str, str]]:
        for work in works:
            salt = tune_functions_digest(work.op, self.setting.root)
            for job in jobs_of(work, launch, self.devices[0], winners, salt, self.wish.rules):
                yield job if isinstance(job, RaceJob) else (_case_text(work, job[0]), job[1])

    def _write(self, results: Sequence[KeyResult]) -> str:
        rows = tuple(row for result in results if (row := result.row()) is not None)
        if not rows:
            return ""
        device = self.devices[0]
        versions = {**dict(self.description.versions), "kbuild": __version__, "torch": self.torch}
        known = tuple(sorted(versions.items()))
        table = TunedTable(device.name, device.arch, rows, device.driver, known)
        return write_table(self.setting.root, table)

    def _name(self, device: Device) -> str:
        """Of the journal: times of another variant or device say nothing about this one.

        A build of the same images has the same, whatever else it has another name for.
        """
        probes, about = code_digest(*sorted(_PROBES.rglob("*.py"))), self.description.measured()
        facts = (device.name, device.driver, self.torch, about, probes)
        digest = hashlib.sha256("\0".join(facts).encode())
        if not self.description.images:
            for file in sorted(self.setting.variant.rglob("*")):
                if file.suffix in _CODE:
                    digest.update(sha256_of_file(file).encode())
        return digest.hexdigest()[:16]


def require_complete(tuned: Sequence[TuneResult]) -> None:
    """A budget that was too short has its own exit code.

    Raises:
        IncompleteError: not everything was measured.
    """
    count = sum(result.unmeasured for result in tuned)
    if count:
        message = f"the time budget ended before {count} measurement{'s' * (count != 1)}"
        raise IncompleteError(message, hint="run the same command again to continue")


@dataclass
class _TuneProgress:
    """Tells how far a crew has come."""

    progress: Progress
    total: int
    done: int

    def __call__(self, device: Device, job: RaceJob, answer: Mapping[str, Any]) -> None:
        """See `crew.Heard`."""
        self.done += "done" in answer
        self.progress.update(self.done, self.total, f"{device.id}: {job.case.label}")


def _case_text(work: OpBenchmark, case: TuningCase) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in case)
    return f"{work.op.name} {sizes}".rstrip()
