"""Compiling many specialisations of a kernel with one worker and with two: what is timed, and how.

Each run starts its workers anew, so the start of an interpreter and the import of the DSL count.
One worker and two take turns, so that a busy moment of the machine hits both; figures are medians.
On a machine that is busy with other things, the processor seconds of the workers say how much of
the time was theirs.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.languages.aot_compiler import AotCompiler
from kbuild.languages.base import LANGUAGES
from kbuild.languages.environment import DslEnvironments
from kbuild.languages.unit import ImageTarget
from kbuild.ops.binding import bind
from kbuild.ops.model import IssueCollector
from kbuild.ops.section import read_section
from kbuild.runtime.budget import Budget, open_run
from kbuild.runtime.processes import LocalRunner
from kbuild.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller

MEMORY = 8192
TARGET = ImageTarget.parse("sm_90a")


@dataclass(frozen=True)
class Kernel:
    """What a plan says of a kernel, and its section of `build.toml`."""

    name: str
    section: Mapping[str, Any]
    flavour: str = "cuda13"

    @property
    def language(self) -> str:
        """See `kbuild.languages.compile_environment.CompilableKernel`."""
        return str(self.section["language"])

    @property
    def toolchain(self) -> tuple[str, ...]:
        """See `kbuild.languages.compile_environment.CompilableKernel`."""
        return (str(self.section["toolchain"]),)

    @property
    def sources(self) -> tuple[str, ...]:
        """See `kbuild.languages.compile_environment.CompilableKernel`."""
        return tuple(self.section["src"])


@contextmanager
def workshop(cache: Path, jobs: int, *, keeps: bool) -> Iterator[AotCompiler]:
    """A workshop of a run of its own."""
    installer = WheelInstaller(LocalRunner(), open_store(cache), say=print)
    with open_run(Budget(jobs, MEMORY), cache, {}, keeps=keeps) as run:
        found = AotCompiler(run, DslEnvironments(installer))
        try:
            yield found
        finally:
            found.close()


def once(
    kernel: Kernel, cache: Path, root: Path, jobs: int, count: int, *, keeps: bool = False
) -> float:
    """Seconds from describing the source to the last image.

    Args:
        kernel: with one op, of one launch.
        cache: kbuild's.
        root: the project.
        jobs: workers at most.
        count: of the units that there have to be.
        keeps: images, for the next run.
    """
    op = read_section(kernel.name, kernel.section).ops[0]
    with workshop(cache, jobs, keeps=keeps) as shop:
        shop.prepare(kernel)
        began = time.perf_counter()
        functions = shop.describe(kernel, root)
        signatures = {name: one.parameters for name, one in functions.items()}
        bound = bind(op, op.launches[0], signatures, IssueCollector(()))
        if bound is None:
            raise SystemExit("the section does not fit the source")
        units = LANGUAGES.get(kernel.language).expand(op, (TARGET,))
        made = shop.compile(kernel, root, [(unit, bound) for unit in units])
        seconds = time.perf_counter() - began
    if len(made) != len(units) or len(units) != count:
        raise SystemExit(f"{len(made)} images of {len(units)} units")
    return seconds


def measure(kernel: Kernel, cache: Path, root: Path, rounds: int, count: int) -> dict[str, float]:
    """Median seconds, and how they relate; `kept` is the time when nothing has to be compiled."""
    times: dict[int, list[float]] = {1: [], 2: []}
    spent: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for jobs, found in times.items():
            before = _processor_seconds()
            found.append(once(kernel, cache, root, jobs, count))
            spent[jobs].append(_processor_seconds() - before)
    once(kernel, cache, root, 2, count, keeps=True)
    kept = _median(once(kernel, cache, root, 2, count, keeps=True) for _ in range(max(rounds, 3)))
    one, two = (statistics.median(found) for found in times.values())
    ratio = _median(a / b for a, b in zip(times[1], times[2], strict=True))
    return {
        "one_worker": round(one, 2),
        "two_workers": round(two, 2),
        "one_worker_processor": round(statistics.median(spent[1]), 2),
        "two_workers_processor": round(statistics.median(spent[2]), 2),
        "kept": round(kept, 4),
        "ratio": round(ratio, 2),
    }


def missed(targets: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a value is above its target."""
    return any(row["value"] > row["target"] for row in targets)


def _median(values: Iterator[float]) -> float:
    return statistics.median(list(values))


def _processor_seconds() -> float:
    """Of the workers that have ended, and what they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
