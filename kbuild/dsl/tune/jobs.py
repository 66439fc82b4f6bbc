"""Jobs to measure: for one call, every candidate of one launch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbuild.dsl.candidates import runs_on
from kbuild.dsl.tune.cases import (
    BenchmarkCase,
    InvalidCase,
    benchmark_cases,
    one_for_each_key,
)
from kbuild.dsl.tune.host import Device
from kbuild.ops.manifest import CHOOSE_OP, ManifestKernel, OpManifest
from kbuild.ops.model import OpSpec, TuningCase
from kbuild.ops.steps import Candidate
from kbuild.ops.unit import targets_of_arch

_ALTERNATIVES = 2
"""Minimum of candidates to compare in ops of an `origin`, whose conditions may leave only one."""
_NO_DEVICE = {"sm_count()": 1, "capability()": 0}
"""Answers to queries about a device while no measurement is planned."""


@dataclass(frozen=True)
class OpBenchmark:
    """One op of a variant, and the calls of it that are measured."""

    kernel: ManifestKernel
    op: OpSpec
    first: int
    """The control op's number of the op's first launch."""
    cases: tuple[BenchmarkCase, ...]
    left_out: tuple[tuple[TuningCase, str], ...] = ()

    def control(self, launch: int) -> int:
        """Number of a launch for the control op."""
        return self.first + launch


@dataclass(frozen=True)
class RaceJob:
    """A race between the candidates of one launch."""

    work: OpBenchmark
    case: BenchmarkCase
    launch: int
    candidates: tuple[int, ...]
    """Indices in the section's order; the first one that runs is the default."""
    fixed: tuple[tuple[int, int], ...] = ()
    """(launch, candidate) of other launches that must run a certain candidate; for the control
    op."""
    salt: str = ""
    """Digest of the project's functions that make inputs and expected results."""
    rules: Mapping[str, float] = field(default_factory=dict, hash=False)

    def content(self) -> dict[str, Any]:
        """JSON object of the job for the probe, without the id."""
        tune = self.work.op.tune
        facts = {"sizes": dict(self.case.call), "dtypes": dict(self.case.dtypes)}
        return {
            "op": self.work.op.name,
            "choose": CHOOSE_OP,
            "launch": self.work.control(self.launch),
            "fixed": [list(pair) for pair in self.fixed],
            "candidates": list(self.candidates),
            "arguments": self.case.arguments(),
            "inputs": tune.inputs,
            "reference": tune.reference,
            "rtol": tune.rtol,
            "atol": tune.atol,
            "facts": facts,
            "rules": dict(self.rules),
        }

    @property
    def id(self) -> str:
        """Id of the job in the journal, which is derived from its content."""
        text = json.dumps([self.content(), self.salt, self.work.kernel.name], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def candidate(self, index: int) -> Candidate:
        """One of the launch's candidates."""
        return self.work.op.launches[self.launch].candidates[index]


def benchmarks_of(
    description: OpManifest, device: Device | None, only: Sequence[str], more: Mapping[str, Any]
) -> tuple[OpBenchmark, ...]:
    """Return the ops of a variant with the calls to measure.

    Expressions may ask about the device, which is None while no measurement is planned. `only`
    names ops, all when empty; `more` has cases by op in place of those of its `tune` table.
    """
    benchmarks, first = [], 0
    # The control op counts launches in this order, see `CHOOSE_OP`.
    for kernel in sorted(description.kernels, key=lambda kernel: kernel.name):
        for op in kernel.ops():
            # For every op, since the control op counts the launches of all.
            start, first = first, first + len(op.launches)
            origin = kernel.section.origin
            if only and not {op.name, origin} & {*only}:
                continue
            if origin and not (op.tune.cases or op.name in more):
                continue  # without cases, the author's function makes the calls
            if op.name in more:
                op = replace(op, tune=replace(op.tune, cases=more[op.name]))  # noqa: PLW2901
            answers = device.answers if device is not None else _NO_DEVICE
            case_lists = [benchmark_cases(op, dtypes, answers) for dtypes in op.dtype_sets()]
            cases = tuple(case for some, _ in case_lists for case in some)
            if origin and op.name not in more:
                cases = tuple(one_for_each_key(cases))
            left_out = dict.fromkeys(entry for _, some in case_lists for entry in some)
            benchmarks.append(OpBenchmark(kernel, op, start, cases, tuple(left_out)))
    return tuple(benchmarks)


def jobs_of(  # noqa: PLR0917
    work: OpBenchmark,
    launch: int,
    device: Device,
    winners: Mapping[tuple[BenchmarkCase, int], int],
    salt: str = "",
    rules: Mapping[str, float] | None = None,
) -> Iterator[RaceJob | tuple[TuningCase, str]]:
    """Yield the races for one launch of an op; for a call without one, the reason.

    `winners` are the candidates of earlier launches; `rules` set the duration of measurements.
    """
    if launch >= len(work.op.launches):
        return
    candidates = work.op.launches[launch].candidates
    for case in work.cases:
        try:
            if not case.launches(launch):
                continue
            fitting = tuple(
                index
                for index, candidate in enumerate(candidates)
                if is_made_for(candidate, device.arch) and case.holds(launch, index)
            )
        except InvalidCase as reason:
            yield case.call, str(reason)
            continue
        if work.kernel.section.origin and len(fitting) < _ALTERNATIVES:
            continue
        if not fitting:
            yield case.call, f"no candidate of launch {launch} supports it"
            continue
        known = (at for at in range(launch) if (case, at) in winners)
        fixed = tuple((work.control(at), winners[case, at]) for at in known)
        yield RaceJob(work, case, launch, fitting, fixed, salt, rules or {})


def is_made_for(candidate: Candidate, arch: str) -> bool:
    """True if images of the candidate may run on devices of that arch."""
    return not candidate.archs or any(
        runs_on(targets_of_arch(supported_arch)[0], arch) for supported_arch in candidate.archs
    )


def tune_functions_digest(op: OpSpec, root: Path) -> str:
    """Digest of the project's modules that make inputs and expected results."""
    digest = hashlib.sha256()
    for written in (op.tune.inputs, op.tune.reference):
        file = root / f"{written.partition(':')[0].replace('.', '/')}.py"
        digest.update(file.read_bytes() if written and file.is_file() else b"")
    return digest.hexdigest()[:16]
