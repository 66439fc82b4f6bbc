"""One tuning: selects the jobs, has them measured, and writes the table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.code_digest import code_digest
from kbuild.errors import IncompleteError
from kbuild.ops.manifest import OpManifest
from kbuild.ops.model import TuningCase
from kbuild.ops.tuned_tables import TunedTable, write_table
from kbuild.progress import Progress
from kbuild.runtime.files import sha256_of_file
from kbuild.tune.cases import BenchmarkCase
from kbuild.tune.devices import Device
from kbuild.tune.jobs import OpBenchmark, RaceJob, benchmarks_of, jobs_of, tune_functions_digest
from kbuild.tune.results import REPETITIONS, Journal, KeyResult, RaceOutcome, results_of
from kbuild.tune.workers import DeviceWorkers, WorkerSettings

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
    """Fields of `probes.race.RaceRules` that are not the usual ones."""


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
            known = sum(journal.repetitions(job.id) for job in jobs)
            heard = _TuneProgress(self.progress, len(jobs) * REPETITIONS, known)
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
