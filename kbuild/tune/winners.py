"""From times to rows: the candidate that is the best for a key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.languages.stale import written
from kbuild.languages.tables import Row
from kbuild.tune.jobs import Job
from kbuild.tune.journal import Outcome

NOISE = 0.01
"""The default stays where nothing is faster by more than this share."""
Measured = tuple[Job, Outcome]


@dataclass(frozen=True)
class Result:
    """What was measured for one launch, one set of dtypes and one key."""

    measured: tuple[Measured, ...]
    """Several when calls have the same key."""
    winner: int | None
    microseconds: float = 0.0
    """Of the winner; the geometric mean over the calls."""
    default: int | None = None
    default_microseconds: float = 0.0

    @property
    def job(self) -> Job:
        """The first of the jobs."""
        return self.measured[0][0]

    @property
    def gain(self) -> float:
        """How much faster the winner is: 0.25 when the default takes 1.25 times as long."""
        return self.default_microseconds / self.microseconds - 1 if self.microseconds else 0.0

    def row(self) -> Row | None:
        """The row of a table; None when no candidate runs."""
        if self.winner is None:
            return None
        job = self.job
        candidate = job.candidate(self.winner)
        return Row(
            kernel=job.work.kernel.name,
            op=job.work.op.name,
            launch=job.launch,
            dtypes=job.case.dtypes,
            key=job.case.key,
            constants=candidate.constants,
            options=candidate.options,
            microseconds=round(self.microseconds, 3),
            default_microseconds=round(self.default_microseconds, 3),
        )

    def name(self, index: int) -> str:
        """A candidate as `build.toml` writes it."""
        candidate = self.job.candidate(index)
        return written(candidate.constants, candidate.options)

    def excluded(self) -> Iterator[tuple[str, str, str]]:
        """`failed` or `wrong`, the candidate, and why; each once."""
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
        return {
            "kernel": job.work.kernel.name,
            "op": job.work.op.name,
            "launch": job.launch,
            "dtypes": dict(job.case.dtypes),
            "key": list(job.case.key),
            "cases": [one.case.label for one, _ in self.measured],
            "winner": {"constants": dict(row.constants), "options": dict(row.options)}
            if row
            else None,
            "us": row.microseconds if row else None,
            "default_us": row.default_microseconds if row else None,
            "excluded": [
                {"kind": kind, "candidate": name, "reason": why}
                for kind, name, why in self.excluded()
            ],
            "errors": [outcome.error for _, outcome in self.measured if outcome.error],
        }


def results_of(measured: Iterable[Measured]) -> tuple[Result, ...]:
    """One result for each launch, dtypes and key, in the order of the jobs."""
    groups: dict[Any, list[Measured]] = {}
    for job, outcome in measured:
        place = (job.work.kernel.name, job.work.op.name, job.launch)
        groups.setdefault((place, job.case.dtypes, job.case.key), []).append((job, outcome))
    return tuple(map(_result, groups.values()))


def _result(measured: Sequence[Measured]) -> Result:
    times = [outcome.times for _, outcome in measured if outcome.times]
    everywhere = set.intersection(*map(set, times)) if times else set()
    if not everywhere:
        return Result(tuple(measured), None)
    means = {one: _mean([some[one] for some in times]) for one in sorted(everywhere)}
    defaults = [outcome.default for _, outcome in measured if outcome.default in means]
    default = defaults[0] if defaults else None
    winner = _best(means, default)
    return Result(
        tuple(measured),
        winner,
        means[winner],
        default,
        means[winner if default is None else default],
    )


def _best(means: Mapping[int, float], default: int | None) -> int:
    best = min(means, key=lambda one: means[one])
    if default is not None and means[default] <= means[best] * (1 + NOISE):
        return default
    return best


def _mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))
