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
    unmeasured: int = 0
    """Number of jobs that the time was too short for."""
    path: str = ""
    """Path of the table, relative to the project; empty if nothing was measured."""
    error: KbuildError | None = None

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
    progress: TuningProgress
    journals: Path

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
            self.progress.expect(len(jobs) * REPETITIONS, known)
            workers = DeviceWorkers(self.setting, devices, journal, self.progress)
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
    """Adds up what the tunings of all models have measured; they run in several threads."""

    def __init__(self, progress: Progress, clock: Clock = time.monotonic) -> None:
        self._progress, self._clock, self._began = progress, clock, clock()
        self._lock = threading.Lock()
        self._known = self._done = self._total = 0

    def expect(self, total: int, known: int) -> None:
        """Add measurements, of which `known` are in the journal already."""
        with self._lock:
            self._known += known
            self._done += known
            self._total += total

    def show(self, label: str, *, is_done: bool) -> None:
        """Show what a worker measures; with `is_done`, it has ended a measurement."""
        with self._lock:
            self._done += is_done
            # Calls whose times differ much take more processes than expected.
            self._total = max(self._total, self._done)
            measured, left = self._done - self._known, self._total - self._done
            seconds = None
            if measured >= (measured + left) * ESTIMATED_FROM > 0:
                seconds = (self._clock() - self._began) * left / measured
            self._progress.update(self._done, self._total, label, seconds)

    def __call__(self, device: Device, job: RaceJob, answer: Mapping[str, Any]) -> None:
        """See `workers.JobListener`."""
        label = f"{device.id}: {job.case.label}"
        if "waiting" in answer:
            label = f"{device.id}: waiting until another tuning has measured there"
        self.show(label, is_done="done" in answer)


def _case_text(work: OpBenchmark, case: TuningCase) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in case)
    return f"{work.op.name} {sizes}".rstrip()
