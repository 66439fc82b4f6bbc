"""Measures a project's benchmarks in several processes, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild import manual_page
from kbuild.dsl.bench.results import (
    COPY,
    KERNEL,
    REFERENCE,
    BenchmarkResults,
    DeviceLimits,
    SideTimes,
    WorkloadResult,
)
from kbuild.dsl.tune.host import ProbeConnection, ProbeHost
from kbuild.plan.metadata import MetadataError, read_metadata
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.progress import Progress

_PROGRAM = "kbuild.dsl.tune.probes.benchmarks"
PROCESSES = 3
"""Processes that measure each workload: times depend on a process's addresses and caches."""
Answer = Mapping[str, Any]


def find_scripts(root: Path) -> tuple[Path, ...]:
    """Return the benchmark scripts of a project.

    Raises:
        UsageError: there is none.
    """
    scripts = tuple(sorted((root / "benchmarks").glob("benchmark*.py")))
    if not scripts:
        raise UsageError(
            f"`{root / 'benchmarks'}` has no file `benchmark*.py`",
            hint=f"{manual_page('how-to/bench.md')} shows one; `kbuild init` writes one",
        )
    return scripts


@dataclass(frozen=True)
class BenchmarkSession:
    """The workloads to measure, and the device."""

    host: ProbeHost
    root: Path
    scripts: Sequence[Path]
    sides: Mapping[str, Path]
    """`kernel`, and perhaps `against` -> a variant's folder."""
    device: str
    only: tuple[str, ...] = ()
    """Substrings of the names of workloads to measure; all when empty."""
    processes: int = PROCESSES

    def perform(self, progress: Progress) -> BenchmarkResults:
        """Measure everything.

        Raises:
            ToolchainError: a variant cannot be loaded.
            UsageError: there is no such workload.
        """
        with _BenchmarkWorker(self, [KERNEL]) as worker:
            listed = worker.ask("list", scripts=[str(script) for script in self.scripts])
        if "error" in listed:
            raise UsageError(f"the benchmarks cannot be imported: {listed['error']}")
        workloads = [
            workload
            for workload in listed["workloads"]
            if (not self.only or any(part in _name(workload) for part in self.only))
        ]
        if not workloads:
            names = ", ".join(map(_name, listed["workloads"])) or "no method `benchmark_*`"
            raise UsageError("no workload is selected", hint=f"the scripts have: {names}")
        groups = self._groups()
        total, done = len(workloads) * self.processes * len(groups), 0
        answers: list[list[Answer]] = [[] for _ in workloads]
        limits: dict[str, float] = {}
        for repetition in range(self.processes):
            # The order alternates, so that a drift of the clock rate does not favour one side.
            for group in groups[:: 1 if repetition % 2 else -1]:
                with _BenchmarkWorker(self, group) as worker:
                    for at, workload in enumerate(workloads):
                        progress.update(done, total, _name(workload))
                        answers[at].append(worker.ask("race", **workload))
                        done += 1
                    # Once, since the device's rates do not depend on the variant.
                    if not limits:
                        limits = dict(_measure_limits(worker, answers))
        results = [_result(*pair) for pair in zip(workloads, answers, strict=True)]
        return BenchmarkResults(tuple(results), DeviceLimits(limits), listed["machine"])

    def _groups(self) -> list[list[str]]:
        """Sides by process: one process for all, unless their op namespaces are the same."""
        identifiers = list(map(_identifier, self.sides.values()))
        # One process cannot load two builds with the same op namespace.
        if "" not in identifiers and len({*identifiers}) == len(identifiers):
            return [list(self.sides)]
        return [[side] for side in self.sides]


def _identifier(variant: Path) -> str:
    """Op namespace of the variant; empty if its metadata does not have it."""
    try:
        return read_metadata(variant).id
    except (OSError, MetadataError):
        return ""


def _measure_limits(
    worker: _BenchmarkWorker, answers: Sequence[Sequence[Answer]]
) -> Iterator[tuple[str, float]]:
    """Yield the device's rates that the workloads are compared with, where they can be measured."""
    measured = [answer for some in answers for answer in some if "error" not in answer]
    dtypes = dict.fromkeys(answer["dtype"] for answer in measured if answer["flops"])
    for name, answer in (
        (COPY, worker.ask("copy")),
        *((dtype, worker.ask("matmul", dtype=dtype)) for dtype in dtypes),
    ):
        if "rate" in answer:
            yield name, float(answer["rate"])


def _name(workload: Mapping[str, str]) -> str:
    return f"{workload['class']}.{workload['workload']}"


def _result(workload: Mapping[str, str], answers: Sequence[Answer]) -> WorkloadResult:
    name = _name(workload)
    errors = [str(answer["error"]) for answer in answers if "error" in answer]
    if errors:
        return WorkloadResult(name, {}, error=errors[0])
    times: dict[str, list[tuple[float, ...]]] = {}
    wrong: dict[str, str] = {}
    for answer in answers:
        wrong |= answer["wrong"]
        for side, samples in answer["samples_us"].items():
            if side != REFERENCE or KERNEL in answer["samples_us"]:  # once for each of the kernel's
                times.setdefault(side, []).append(tuple(time / 1000 for time in samples))
    measured = next(answer for answer in answers if KERNEL in answer["samples_us"])
    return WorkloadResult(
        name,
        {side: SideTimes(tuple(processes)) for side, processes in times.items()},
        bytes_moved=measured["bytes"],
        flops=measured["flops"],
        dtype=measured["dtype"],
        wrong=wrong,
    )


@dataclass
class _BenchmarkWorker:
    """Context with a worker process that has loaded some sides."""

    session: BenchmarkSession
    sides: Sequence[str]
    connection: ProbeConnection = field(init=False)
    name: str = field(init=False)
    jobs: int = 0

    def __enter__(self) -> _BenchmarkWorker:  # noqa: PYI034 - `Self` is not in Python 3.10
        session = self.session
        variants = [{"name": side, "variant": str(session.sides[side])} for side in self.sides]
        settings = {"program": _PROGRAM, "device": session.device, "sides": variants}
        self.connection = session.host.connect()
        self.name = self.connection.start(settings | {"root": str(session.root)})
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.send({"stop": self.name})

    def ask(self, what: str, **arguments: Any) -> Answer:
        """Send a job and return its answer, which has `error` if the job failed.

        Raises:
            ToolchainError: the variant cannot be loaded.
        """
        self.jobs += 1
        job = {"id": f"{self.name}.{self.jobs}", "do": what, **arguments}
        self.connection.send({"to": self.name, "job": job})
        while True:
            answer = self.connection.receive()
            if answer.get("done") == job["id"]:
                return answer
            if "unloadable" in answer:
                names = " or ".join(self.session.sides[side].name for side in self.sides)
                raise ToolchainError(
                    f"`{names}` cannot be loaded: {answer['unloadable']}",
                    hint="`kbuild check --builds` says more",
                )
            if "ended" in answer:
                raise ToolchainError(
                    f"the process that measured ended with exit code {answer['code']}",
                    hint=f"start `{self.session.host.python}` and run the benchmark there",
                )
