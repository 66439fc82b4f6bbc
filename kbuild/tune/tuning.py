"""One tuning: what is to be measured, measured launch by launch, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.errors import IncompleteError
from kbuild.fileset import sha256_of_file
from kbuild.installation import code_digest
from kbuild.languages.description import Description
from kbuild.languages.spec.values import TuningCase
from kbuild.languages.tablefile import write_table
from kbuild.languages.tables import Table
from kbuild.progress import Progress
from kbuild.tune.cases import Case
from kbuild.tune.crew import Crew, Setting
from kbuild.tune.devices import Device
from kbuild.tune.jobs import Job, Work, jobs_of, salt_of, work_of
from kbuild.tune.journal import Journal, Outcome
from kbuild.tune.winners import Result, results_of

_PROBES = Path(__file__).with_name("probes")
_CODE = {".so", ".pyd", ".dylib", ".py"}
"""Files of a variant that make a difference, where it does not say which images it has."""


@dataclass(frozen=True)
class Wish:
    """What is measured, and how."""

    only: tuple[str, ...] = ()
    """Names of ops; all when empty."""
    cases: Mapping[str, tuple[TuningCase, ...]] = field(default_factory=dict)
    """Op -> cases instead of those of its `tune` table."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """Fields of `probes.race.Rules` that are not the usual ones."""


@dataclass(frozen=True)
class Tuned:
    """What a tuning led to on one GPU model."""

    device: Device
    results: tuple[Result, ...]
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
class Tuning:
    """The candidates of one variant on the devices of one model."""

    setting: Setting
    description: Description
    devices: Sequence[Device]
    wish: Wish
    torch: str
    progress: Progress
    journals: Path
    """Folder of what was measured so far."""

    def perform(self) -> Tuned:
        """Measure, and write the table.

        Raises:
            ToolchainError: the variant cannot be run.
        """
        device = self.devices[0]
        works = work_of(self.description, device, self.wish.only, self.wish.cases)
        journal = Journal(self.journals / f"{self._name(device)}.jsonl")
        measured: list[tuple[Job, Outcome]] = []
        left_out = [*_left_out(works)]
        winners: dict[tuple[Case, int], int] = {}
        unmeasured = 0
        for launch in range(max((len(work.op.launches) for work in works), default=0)):
            found = list(self._jobs(works, launch, winners))
            jobs = [job for job in found if isinstance(job, Job)]
            left_out += [one for one in found if not isinstance(one, Job)]
            heard = _Heard(
                self.progress, len(jobs), sum(journal.outcome(job.id) is not None for job in jobs)
            )
            crew = Crew(self.setting, self.devices, journal, heard)
            unmeasured += len(crew.measure(jobs))
            done = [(job, outcome) for job in jobs if (outcome := journal.outcome(job.id))]
            measured += done
            for result in results_of(done):
                if result.winner is not None:
                    winners |= {(job.case, launch): result.winner for job, _ in result.measured}
        results = results_of(measured)
        path = self._write(results)
        return Tuned(device, results, tuple(dict.fromkeys(left_out)), unmeasured, path)

    def _jobs(
        self, works: Sequence[Work], launch: int, winners: Mapping[tuple[Case, int], int]
    ) -> Iterator[Job | tuple[str, str]]:
        for work in works:
            salt = salt_of(work.op, self.setting.root)
            for one in jobs_of(work, launch, self.devices[0], winners, salt, self.wish.rules):
                yield one if isinstance(one, Job) else (_said(work, one[0]), one[1])

    def _write(self, results: Sequence[Result]) -> str:
        rows = tuple(row for result in results if (row := result.row()) is not None)
        if not rows:
            return ""
        device = self.devices[0]
        versions = {**dict(self.description.versions), "kbuild": __version__, "torch": self.torch}
        known = tuple(sorted(versions.items()))
        table = Table(device.name, device.arch, rows, device.driver, known)
        return write_table(self.setting.root, table)

    def _name(self, device: Device) -> str:
        """Of the journal: times of another variant or device say nothing about this one.

        A build of the same images has the same, whatever else it has another name for.
        """
        about = (device.name, device.driver, self.torch, self.description.measured(), _measures())
        found = hashlib.sha256("\0".join(about).encode())
        if not self.description.images:
            for file in sorted(self.setting.variant.rglob("*")):
                if file.suffix in _CODE:
                    found.update(sha256_of_file(file).encode())
        return found.hexdigest()[:16]


def _measures() -> str:
    """The code that measures: times that another took are not compared with its own."""
    return code_digest(*sorted(_PROBES.rglob("*.py")))


def refuse_incomplete(tuned: Sequence[Tuned]) -> None:
    """A budget that was too short is said with an exit code.

    Raises:
        IncompleteError: not everything was measured.
    """
    count = sum(one.unmeasured for one in tuned)
    if count:
        words = f"the budget was over before {count} measurement{'s' * (count != 1)}"
        raise IncompleteError(words, hint="run the same command again: it goes on from there")


@dataclass
class _Heard:
    """Tells how far a crew has come."""

    progress: Progress
    total: int
    done: int

    def __call__(self, device: Device, job: Job, said: Mapping[str, Any]) -> None:
        """See `crew.Heard`."""
        self.done += "done" in said
        self.progress.update(self.done, self.total, f"{device.id}: {job.case.label}")


def _left_out(works: Sequence[Work]) -> Iterator[tuple[str, str]]:
    for work in works:
        for said, reason in work.left_out:
            yield _said(work, said), reason


def _said(work: Work, said: TuningCase) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in said)
    return f"{work.op.name} {sizes}".rstrip()
