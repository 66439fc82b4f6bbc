"""The results of measurements: the journal that survives an interruption, and rows for tables."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbuild.dsl.tune.jobs import RaceJob
from kbuild.ops.tuned_tables import TunedRow, candidate_toml
from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import read_json_lines, reading

REPETITIONS = 3
"""Minimum of processes that measure a call: addresses and clocks differ between them."""
MAX_REPETITIONS = 9
"""Maximum of processes, for calls whose times differ much, as at a GPU's power limit."""
_MIN_FREEDOM = 2
"""Minimum of readings, less one for each device, that show how much those of a device differ."""
PRECISION = 0.005
"""Standard error of the fastest candidate's time, relative to it, that is precise enough."""


@dataclass(frozen=True)
class RaceOutcome:
    """The result of the races for one call."""

    times: Mapping[int, float] = field(default_factory=dict)
    """Candidate -> microseconds: the mean of its readings without the longest and the shortest."""
    failed: Mapping[int, str] = field(default_factory=dict)
    wrong: Mapping[int, str] = field(default_factory=dict)
    default: int | None = None
    """The first candidate that runs and gives right results."""
    error: str = ""
    readings: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """Candidate -> microseconds in each process; empty when there was one."""
    devices: tuple[str, ...] = ()
    """The device of each reading."""
    contenders: tuple[int, ...] = ()
    """Candidates that the first process did not drop."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RaceOutcome:
        """Parse a probe's answer to a job.

        Raises:
            DamagedFileError: that is not an outcome.
        """
        with reading("the answer", "an outcome"):
            default = data.get("default")
            if default is not None and not isinstance(default, int):
                raise ValueError(f"`{default}` is not a candidate")
            times = {int(at): float(us) for at, us in data.get("times", {}).items()}
            failed, wrong = (
                {int(at): str(why) for at, why in data.get(key, {}).items()}
                for key in ("failed", "wrong")
            )
            # Every process measures the default, because the winner has to be faster than it.
            alive = {*map(int, data.get("alive", ())), *([] if default is None else [default])}
            return cls(
                times,
                failed,
                wrong,
                default,
                str(data.get("error", "")),
                devices=(str(data.get("device", "")),),
                contenders=tuple(sorted(alive)),
            )

    @classmethod
    def combined(cls, outcomes: Sequence[RaceOutcome]) -> RaceOutcome:
        """Combine the races of several processes; only candidates that all measured have times."""
        first, measured = outcomes[0], [outcome for outcome in outcomes if outcome.times]
        if len(outcomes) == 1 or not measured:
            return first
        everywhere = set.intersection(*(set(outcome.times) for outcome in measured))
        readings = {at: tuple(o.times[at] for o in measured) for at in sorted(everywhere)}
        failed: dict[int, str] = {}
        for outcome in outcomes:
            failed |= outcome.failed
        return replace(
            first,
            times={at: _typical(values) for at, values in readings.items()},
            failed=failed,
            readings=readings,
            devices=tuple(device for outcome in measured for device in outcome.devices),
        )

    def spread(self, candidate: int) -> float:
        """Largest minus smallest reading, relative to the time; 0 if one process measured."""
        values = self.readings.get(candidate, ())
        return (max(values) - min(values)) / self.times[candidate] if values else 0.0

    @property
    def standard_error(self) -> float:
        """The standard error of the fastest candidate's time, relative to it; 0 for one process."""
        fastest = min(self.readings, key=self.times.__getitem__, default=None)
        if fastest is None:
            return 0.0
        values = self.readings[fastest]
        deviation = statistics.stdev(values)
        # Two GPUs of one model differ by more than the processes on one of them, and for all
        # candidates alike, which no number of measurements would change.
        groups: dict[str, list[float]] = {}
        for device, value in zip(self.devices, values, strict=True):
            groups.setdefault(device, []).append(value)
        freedom = len(values) - len(groups)
        if freedom >= _MIN_FREEDOM:
            # This is the pooled variance within the devices.
            squares = sum(len(own) * statistics.pvariance(own) for own in groups.values())
            deviation = min(deviation, math.sqrt(squares / freedom))
        return deviation / math.sqrt(len(values)) / self.times[fastest]


class Journal:
    """Outcomes by job, in a file that lines are only appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[str, dict[int, RaceOutcome]] = {}
        self._crashes: dict[str, dict[int, str]] = {}
        for line in read_json_lines(path, "a journal"):
            try:
                with reading(path, "a journal"):
                    self._take(line)
            except DamagedFileError:
                continue  # it is measured again

    def outcome(self, job: str) -> RaceOutcome | None:
        """The outcome of a job; None when it was not measured yet."""
        outcomes = self._done.get(job)
        if not outcomes:
            return None
        outcome = RaceOutcome.combined([outcomes[number] for number in sorted(outcomes)])
        failed = {**outcome.failed, **self._crashes.get(job, {})}
        times = {at: us for at, us in outcome.times.items() if at not in failed}
        return replace(outcome, times=times, failed=failed)

    def repetitions(self, job: str) -> set[int]:
        """The numbers of the processes that have measured a job."""
        return set(self._done.get(job, ()))

    def is_complete(self, job: str) -> bool:
        """True if there is nothing more to measure for the job."""
        outcomes = [*self._done.get(job, {}).values()]
        # An outcome without times is an error, which a further process would repeat.
        if len(outcomes) >= MAX_REPETITIONS or any(not outcome.times for outcome in outcomes):
            return True
        if len(outcomes) < REPETITIONS:
            return False
        return RaceOutcome.combined(outcomes).standard_error <= PRECISION

    def contenders(self, job: str, candidates: Sequence[int]) -> list[int]:
        """The candidates that the next process has to measure."""
        outcomes = self._done.get(job)
        crashed = self._crashes.get(job, {})
        alive = outcomes[min(outcomes)].contenders if outcomes else candidates
        return [at for at in candidates if at in alive and at not in crashed]

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep a message of a worker.

        `{"done": job, "repetition": n, ...}`, `{"crashed": job, "candidate": n, "reason": "..."}`.
        """
        self._take(line)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # The leading line break ends a line that a crash cut off.
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(line) + "\n")
            file.flush()

    def _take(self, line: Mapping[str, Any]) -> None:
        if "done" in line:
            outcomes = self._done.setdefault(str(line["done"]), {})
            outcomes[int(line.get("repetition", 0))] = RaceOutcome.from_json(line)
        elif "crashed" in line:
            crashes = self._crashes.setdefault(str(line["crashed"]), {})
            crashes[int(line["candidate"])] = str(line["reason"])


MIN_GAIN = 0.03
"""The default stays unless another is faster by more than this share: a winner needs images of
its own, and times differ by a hundredth from run to run."""
TIE = 0.015
"""Candidates whose times differ by less than this share count as equally fast."""
Measured = tuple[RaceJob, RaceOutcome]


@dataclass(frozen=True)
class KeyResult:
    """The result for one launch, one set of dtypes and one key."""

    measured: tuple[Measured, ...]
    """Several entries if calls have the same key."""
    winner: int | None
    microseconds: float = 0.0
    """The winner's time: the geometric mean over the calls."""
    default: int | None = None
    default_microseconds: float = 0.0
    spread: float = 0.0
    """Difference between the winner's times in several processes, relative to its time."""
    ties: tuple[int, ...] = ()
    """Other candidates that are as fast as the fastest one."""

    @property
    def job(self) -> RaceJob:
        """The first of the jobs."""
        return self.measured[0][0]

    @property
    def gain(self) -> float:
        """Speed-up of the winner: 0.25 if the default takes 1.25 times as long."""
        return self.default_microseconds / self.microseconds - 1 if self.microseconds else 0.0

    def row(self) -> TunedRow | None:
        """The row for a tuned table; None if no candidate runs."""
        if self.winner is None:
            return None
        job = self.job
        candidate = job.candidate(self.winner)
        return TunedRow(
            kernel=job.work.kernel.name,
            op=job.work.op.name,
            launch=job.launch,
            dtypes=job.case.dtypes,
            key=job.case.key,
            constants=candidate.constants,
            options=candidate.options,
            microseconds=round(self.microseconds, 3),
            default_microseconds=round(self.default_microseconds, 3),
            spread=round(self.spread, 4),
        )

    def name(self, index: int) -> str:
        """A candidate as `build.toml` writes it."""
        candidate = self.job.candidate(index)
        return candidate_toml(candidate.constants, candidate.options)

    def excluded(self) -> Iterator[tuple[str, str, str]]:
        """Yield `failed` or `wrong`, the candidate and the reason, each once."""
        seen = set()
        for _, outcome in self.measured:
            for kind, reasons in (("failed", outcome.failed), ("wrong", outcome.wrong)):
                for index, why in sorted(reasons.items()):
                    if (kind, index) not in seen:
                        seen.add((kind, index))
                        yield kind, self.name(index), why

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        job, row = self.job, self.row()
        keys = ("kind", "candidate", "reason")
        winner = row and {"constants": dict(row.constants), "options": dict(row.options)}
        return {
            "kernel": job.work.kernel.name,
            "op": job.work.op.name,
            "launch": job.launch,
            "dtypes": dict(job.case.dtypes),
            "key": list(job.case.key),
            "cases": [measured_job.case.label for measured_job, _ in self.measured],
            "jobs": [measured_job.id for measured_job, _ in self.measured],
            "winner": winner,
            "number": None if self.winner is None else self.winner + 1,
            "us": row.microseconds if row else None,
            "default_us": row.default_microseconds if row else None,
            "spread": row.spread if row else None,
            "ties": [self.name(index) for index in self.ties],
            "excluded": [dict(zip(keys, entry, strict=True)) for entry in self.excluded()],
            "errors": [outcome.error for _, outcome in self.measured if outcome.error],
        }


def results_of(measured: Iterable[Measured]) -> tuple[KeyResult, ...]:
    """Return one result for each launch, dtypes and key, in the order of the jobs."""
    groups: dict[Any, list[Measured]] = {}
    for job, outcome in measured:
        place = (job.work.kernel.name, job.work.op.name, job.launch)
        groups.setdefault((place, job.case.dtypes, job.case.key), []).append((job, outcome))
    return tuple(map(_result, groups.values()))


def _result(measured: Sequence[Measured]) -> KeyResult:
    times = [outcome.times for _, outcome in measured if outcome.times]
    everywhere = set.intersection(*map(set, times)) if times else set()
    if not everywhere:
        return KeyResult(tuple(measured), None)
    means = {at: _mean([some[at] for some in times]) for at in sorted(everywhere)}
    default = next((o.default for _, o in measured if o.default in means), None)
    best = min(means, key=lambda at: means[at])
    outcomes = [outcome for _, outcome in measured if outcome.times]
    tied = [at for at in means if _is_tied(at, best, means, outcomes)]
    # The first of equally fast ones, so that a repeated tuning does not choose by chance.
    winner = tied[0]
    if default is not None and means[default] <= means[best] * (1 + MIN_GAIN):
        winner = default
    return KeyResult(
        tuple(measured),
        winner,
        means[winner],
        default,
        default_microseconds=means[winner if default is None else default],
        spread=max(outcome.spread(winner) for outcome in outcomes),
        ties=tuple(at for at in tied if at != winner),
    )


def _is_tied(
    candidate: int, best: int, means: Mapping[int, float], outcomes: Sequence[RaceOutcome]
) -> bool:
    """True if it is as fast as the best, or processes disagree about which is faster."""
    ratio = means[candidate] / means[best]
    readings = [outcome.readings for outcome in outcomes if outcome.readings]
    is_faster_once = any(
        us <= best_us
        for times in readings
        for us, best_us in zip(times[candidate], times[best], strict=True)
    )
    return ratio <= 1 + TIE or (ratio <= 1 + MIN_GAIN and is_faster_once)


def _typical(values: Sequence[float]) -> float:
    """Mean without the largest and the smallest value; of three values, the median."""
    return statistics.mean(sorted(values)[1:-1] if len(values) > 2 else values)  # noqa: PLR2004


def _mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    # A time may have been rounded to 0, which has no logarithm.
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))
