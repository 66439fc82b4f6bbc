"""One tuning: selects jobs, measures them, and writes the tuned table."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.dsl.tune.cases import BenchmarkCase
from kbuild.dsl.tune.host import Device
from kbuild.dsl.tune.jobs import (
    OpBenchmark,
    RaceJob,
    benchmarks_of,
    jobs_of,
    tune_functions_digest,
)
from kbuild.dsl.tune.results import REPETITIONS, Journal, KeyResult, RaceOutcome, results_of
from kbuild.dsl.tune.workers import DeviceWorkers, WorkerSettings
from kbuild.ops.manifest import OpManifest
from kbuild.ops.model import TuningCase
from kbuild.ops.tuned_tables import TunedTable, write_table
from kbuild.system.code_digest import code_digest
from kbuild.system.errors import IncompleteError, KbuildError
from kbuild.system.files import sha256_of_file
from kbuild.system.progress import ESTIMATED_FROM, Clock, Progress
from kbuild.system.quantities import duration_text

_PROBES = Path(__file__).with_name("probes")
_CODE = {".so", ".pyd", ".dylib", ".py"}
"""Suffixes of a variant's files that decide about times, if its description has no digest."""


@dataclass(frozen=True)
class TuneRequest:
    """Options of a tuning."""

    only: tuple[str, ...] = ()
    """Names of ops to tune; all when empty."""
    cases: Mapping[str, tuple[TuningCase, ...]] = field(default_factory=dict)
    """Op -> cases that replace those of its `tune` table."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """Fields of `probes.race.RaceRules` that differ from the defaults."""


@dataclass(frozen=True)
class TuneResult:
    """The result of a tuning on one GPU model."""

    device: Device
    results: tuple[KeyResult, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Calls that were not measured, with reasons."""
    unmeasured: int = 0
    """Number of jobs that the time was too short for."""
    path: str = ""
    """Path of the table, relative to the project; empty if nothing was measured."""
    error: KbuildError | None = None
    """Error that ended the tuning."""

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        error = {"error": self.error.message} if self.error is not None else {}
        return {
            "device": self.device.name,
            "arch": self.device.arch,
            "table": self.path or None,
            "results": [result.to_json() for result in self.results],
            "left_out": [{"case": case, "reason": reason} for case, reason in self.left_out],
            "unmeasured": self.unmeasured,
            **error,
        }


@dataclass(frozen=True)
class TuningRun:
    """The tuning of one variant on the devices of one model."""

    setting: WorkerSettings
    description: OpManifest
    devices: Sequence[Device]
    wish: TuneRequest
    progress: Progress
    journals: Path
    """Folder of the journals."""

    def perform(self) -> TuneResult:
        """Measure, and write the table.

        Raises:
            ToolchainError: the variant cannot be run, or no device is left.
        """
        device, devices = self.devices[0], self.devices
        works = benchmarks_of(self.description, device, self.wish.only, self.wish.cases)
        journal = Journal(self.journals / f"{self._name(device)}.jsonl")
        measured: list[tuple[RaceJob, RaceOutcome]] = []
        left_out = [(_case_text(w, case), reason) for w in works for case, reason in w.left_out]
        winners: dict[tuple[BenchmarkCase, int], int] = {}
        unmeasured = 0
        # Launches are measured in order, each with the winners of the launches before it.
        for launch in range(max((len(work.op.launches) for work in works), default=0)):
            entries = list(self._jobs(works, launch, winners))
            jobs = [job for job in entries if isinstance(job, RaceJob)]
            left_out += [entry for entry in entries if not isinstance(entry, RaceJob)]
            known = sum(len(journal.repetitions(job.id)) for job in jobs)
            progress = _TuneProgress(self.progress, len(jobs) * REPETITIONS, known)
            workers = DeviceWorkers(self.setting, devices, journal, progress)
            unmeasured += len(workers.measure(jobs))
            devices = workers.devices
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
        versions = {**dict(self.description.versions), "kbuild": __version__, "torch": device.torch}
        known = tuple(sorted(versions.items()))
        table = TunedTable(device.name, device.arch, rows, device.driver, known)
        return write_table(self.setting.root, table)

    def _name(self, device: Device) -> str:
        """Name of the journal: a digest of what times depend on.

        Builds with the same images share it, even under another op namespace.
        """
        probes, about = code_digest(*sorted(_PROBES.rglob("*.py"))), self.description.measured()
        facts = (device.name, device.driver, device.torch, about, probes)
        digest = hashlib.sha256("\0".join(facts).encode())
        if not self.description.images:
            for file in sorted(self.setting.variant.rglob("*")):
                if file.suffix in _CODE:
                    digest.update(sha256_of_file(file).encode())
        return digest.hexdigest()[:16]


def tune_models(runs: Sequence[TuningRun]) -> tuple[TuneResult, ...]:
    """Perform runs in parallel, one per model; return results in their order.

    A run that fails has a result with an error, and does not affect the others.
    """
    results: dict[int, TuneResult] = {}
    failures: list[BaseException] = []

    def perform(number: int, run: TuningRun) -> None:
        try:
            results[number] = run.perform()
        except KbuildError as error:
            results[number] = TuneResult(run.devices[0], (), error=error)
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            failures.append(error)

    threads = [
        threading.Thread(target=perform, args=entry, name="tuning", daemon=True)
        for entry in enumerate(runs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return tuple(results[number] for number in range(len(runs)))


def require_complete(tuned: Sequence[TuneResult]) -> None:
    """Raise an error if a model failed, or if the time was too short for some jobs.

    Raises:
        KbuildError: a model could not be tuned.
        IncompleteError: not everything was measured.
    """
    for result in tuned:
        if result.error is not None:
            raise result.error
    count = sum(result.unmeasured for result in tuned)
    if count:
        message = f"the time budget ended before {count} measurement{'s' * (count != 1)}"
        raise IncompleteError(message, hint="run the same command again to continue")


class TuningProgress:
    """Combines the progress of several tunings into one line, with the remaining time."""

    def __init__(self, progress: Progress, clock: Clock = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._lock = threading.Lock()
        self._parts: dict[str, _ModelProgress] = {}

    def of_model(self, model: str) -> Progress:
        """Return the progress of one model's tuning."""
        part = self._parts[model] = _ModelProgress(self)
        return part

    def show(self, label: str) -> None:
        """Show the progress of all; `label` is what one of them measures now."""
        with self._lock:
            known = {model: part for model, part in self._parts.items() if part.total}
            done, total = (
                sum(getattr(part, count) for part in known.values()) for count in ("done", "total")
            )
            if len(known) > 1:
                parts = (f"{model} {part.text(self._clock())}" for model, part in known.items())
                label = "; ".join(parts)
            else:
                label += "".join(part.time_left(self._clock()) for part in known.values())
            self._progress.update(done, total, label)

    def now(self) -> float:
        """Time of the clock in seconds."""
        return self._clock()


class _ModelProgress:
    def __init__(self, view: TuningProgress) -> None:
        self.done = self.total = 0
        self._view, self._first, self._began = view, 0, 0.0

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        """See `Progress.update`; the time that is left is counted for all models together."""
        del left_s
        if not self._began or done < self.done:  # it begins, maybe with another launch
            self._first, self._began = done, self._view.now()
        self.done, self.total = done, max(done, total)
        self._view.show(label)

    def text(self, now: float) -> str:
        return f"{self.done}/{self.total}{self.time_left(now)}"

    def time_left(self, now: float) -> str:
        """Text for the end of a line; empty until a third is measured."""
        measured, left = self.done - self._first, self.total - self.done
        if not left or measured < (measured + left) * ESTIMATED_FROM:
            return ""
        return f", {duration_text((now - self._began) * left / measured)} left"


@dataclass
class _TuneProgress:
    """Counts the jobs that workers have done."""

    progress: Progress
    total: int
    done: int

    def __call__(self, device: Device, job: RaceJob, answer: Mapping[str, Any]) -> None:
        """See `workers.JobListener`."""
        self.done += "done" in answer
        label = f"{device.id}: {job.case.label}"
        if "waiting" in answer:
            label = f"{device.id}: waiting until another tuning has measured there"
        self.progress.update(self.done, self.total, label)


def _case_text(work: OpBenchmark, case: TuningCase) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in case)
    return f"{work.op.name} {sizes}".rstrip()
