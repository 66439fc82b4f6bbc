"""The results of a kernel's workloads: times, ratios, spreads, the roofline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.dsl.tune.probes.race import standard_error
from kbuild.system.quantities import time_text

KERNEL, AGAINST, REFERENCE = "kernel", "against", "reference"
COPY = "copy"
"""Name of the device's limit for moving data."""


@dataclass(frozen=True)
class SideTimes:
    """The times of one workload with one build, or with its reference."""

    processes: tuple[tuple[float, ...], ...]
    """Milliseconds of each call, by process."""

    @property
    def medians(self) -> tuple[float, ...]:
        """Milliseconds, one for each process."""
        return tuple(map(statistics.median, self.processes))

    @property
    def median(self) -> float:
        """Milliseconds: the median of the processes' medians."""
        return statistics.median(self.medians)

    @property
    def samples(self) -> list[float]:
        """Milliseconds of all calls, sorted."""
        return sorted(time for times in self.processes for time in times)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Milliseconds that a quarter of the calls, and three quarters, were faster than."""
        samples = self.samples
        if len(samples) == 1:
            return samples[0], samples[0]
        first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
        return first, third

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles, relative to the median."""
        first, third = self.quartiles
        return (third - first) / 2 / self.median

    @property
    def error(self) -> float:
        """The standard error of the median, relative to it, without what processes differ by."""
        squares = [standard_error(times) ** 2 for times in self.processes]
        return math.sqrt(sum(squares)) / len(squares)

    def to_json(self) -> dict[str, Any]:
        """JSON object in the client's format, with the median in addition."""
        samples = self.samples
        first, third = self.quartiles
        # Tukey's rule: an outlier is more than 1.5 interquartile ranges away from the quartiles.
        margin = 1.5 * (third - first)
        outliers = sum(not first - margin <= time <= third + margin for time in samples)
        numbers = {
            "mean_ms": statistics.fmean(samples),
            "std_ms": statistics.pstdev(samples),
            "min_ms": samples[0],
            "max_ms": samples[-1],
            "q1_ms": first,
            "q3_ms": third,
            "iqr_ms": third - first,
            "median_ms": self.median,
        }
        rounded = {name: round(value, 7) for name, value in numbers.items()}
        return rounded | {"outliers": outliers, "iterations": len(samples)}


@dataclass(frozen=True)
class DeviceLimits:
    """The rates that the device reached in the same run."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """`copy`: bytes per second of a copy; dtype: floating-point operations per second of a
    product of large matrices."""

    def roofline(self, bytes_moved: int, flops: float | None, dtype: str) -> tuple[float, str]:
        """Return the least seconds of a call that moves and computes so much, and the limit."""
        seconds = {COPY: bytes_moved / self.rates[COPY]} if self.rates.get(COPY) else {}
        if flops and self.rates.get(dtype):
            seconds[dtype] = flops / self.rates[dtype]
        limit = max(seconds, key=lambda name: seconds[name], default="")
        return seconds.get(limit, 0.0), limit


@dataclass(frozen=True)
class WorkloadResult:
    """One `benchmark_*` method."""

    name: str
    """`ReluBenchmark.large`."""
    sides: Mapping[str, SideTimes]
    bytes_moved: int = 0
    flops: float | None = None
    dtype: str = ""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Side -> how its result differs from the reference."""
    error: str = ""
    """Reason why it was not measured; empty if it was."""

    @property
    def is_measured(self) -> bool:
        """False where it ended with an error."""
        return KERNEL in self.sides

    def ratio(self, side: str) -> float | None:
        """The time of a side, divided by the kernel's; None when it was not measured.

        Where processes measured both, the median of their ratios: what differs between processes
        affects both.
        """
        ratios = self._ratios(side)
        return statistics.median(ratios) if ratios else None

    def _ratios(self, side: str) -> list[float]:
        if side not in self.sides or not self.is_measured:
            return []
        pairs = zip(self.sides[side].medians, self.sides[KERNEL].medians, strict=True)
        return [other / own for other, own in pairs]

    @property
    def slowdown(self) -> float | None:
        """0.05 where the kernel takes 5 % longer than the other build."""
        ratio = self.ratio(AGAINST)
        return None if ratio is None else 1 / ratio - 1

    @property
    def slowdown_error(self) -> float:
        """The error of the slowdown: two standard errors, or the difference between processes."""
        ratios = [1 / ratio for ratio in self._ratios(AGAINST)]
        if not ratios:
            return 0.0
        two = 2 * math.hypot(self.sides[KERNEL].error, self.sides[AGAINST].error)
        return max(two * statistics.median(ratios), (max(ratios) - min(ratios)) / 2)

    def share(self, limits: DeviceLimits) -> tuple[float, str]:
        """The reached share of the limit that binds, and its name; empty when none is known."""
        seconds, limit = limits.roofline(self.bytes_moved, self.flops, self.dtype)
        return seconds / (self.sides[KERNEL].median / 1000), limit

    def to_json(self, limits: DeviceLimits) -> dict[str, Any]:
        """JSON object of one entry of `results`: the client's keys, and further ones."""
        timing = self.sides[KERNEL].to_json()
        entry: dict[str, Any] = {"workload": self.name, "timingResults": timing}
        if REFERENCE in self.sides:
            entry["verified"] = KERNEL not in self.wrong
            timing["ref_mean_ms"] = self.sides[REFERENCE].to_json()["mean_ms"]
            entry["reference"] = self.sides[REFERENCE].to_json()
            entry["speedup"] = round(self.ratio(REFERENCE) or 0.0, 5)
        if AGAINST in self.sides:
            entry["against"] = self.sides[AGAINST].to_json()
            entry["slowdown"] = round(self.slowdown or 0.0, 5)
            entry["slowdown_error"] = round(self.slowdown_error, 5)
        share, limit = self.share(limits)
        return entry | {
            "bytes": self.bytes_moved,
            "flops": self.flops,
            "dtype": self.dtype,
            "roofline": {"limit": limit, "share": round(share, 5)} if limit else None,
        }


@dataclass(frozen=True)
class BenchmarkResults:
    """All that was measured in one run."""

    workloads: tuple[WorkloadResult, ...]
    limits: DeviceLimits
    machine: Mapping[str, str]
    """Facts in the client's format: `gpu`, `cpu`, `backend`, `os`, `pytorchVersion`."""

    @property
    def measured(self) -> tuple[WorkloadResult, ...]:
        """The workloads with times."""
        return tuple(workload for workload in self.workloads if workload.is_measured)

    def slower(self, threshold: float) -> Iterator[tuple[WorkloadResult, bool]]:
        """Yield workloads that take more than the share `threshold` longer than the other build's.

        The second is True where that is sure, False where the times differ too much to tell.
        """
        for workload in self.measured:
            slowdown = workload.slowdown
            if slowdown is not None and slowdown > threshold:
                yield workload, slowdown - workload.slowdown_error > threshold

    def problems(self) -> Iterator[str]:
        """Messages about workloads that failed or gave wrong results."""
        for workload in self.workloads:
            if workload.error:
                yield f"{workload.name}: {workload.error}"
            for side, problem in workload.wrong.items():
                yield f"{workload.name}, {side}: {problem}"

    def to_json(self, build: str, script_digest: str) -> dict[str, Any]:
        """JSON object of the whole file: the client's keys, and further ones.

        Args:
            build: the tail of the kernel's id.
            script_digest: SHA-256 of the benchmark scripts.
        """
        return {
            "results": [workload.to_json(self.limits) for workload in self.measured],
            "machineInfo": dict(self.machine),
            "kernelCommitSha": build,
            "benchmarkScriptPath": "benchmarks",
            "benchmarkScriptSha": script_digest,
            "limits": dict(self.limits.rates),
        }


_TIMES = ("workload", "median", "spread", "reference", "speed-up")
_COLUMNS = (*_TIMES, "against", "change", "roofline")


def table_of(results: BenchmarkResults) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headers and rows, without the columns that are empty in every row.

    Workloads are named without their class where all have the same.
    """
    owners = {workload.name.partition(".")[0] for workload in results.measured}
    rows = [
        (name if len(owners) == 1 else workload.name, *_numbers(workload, results.limits))
        for workload in results.measured
        for name in (workload.name.partition(".")[2],)
    ]
    filled = [at for at in range(len(_COLUMNS)) if any(row[at] != "-" for row in rows)]
    headers = tuple(_COLUMNS[at] for at in filled)
    return headers, [tuple(row[at] for at in filled) for row in rows]


def _numbers(workload: WorkloadResult, limits: DeviceLimits) -> Sequence[str]:
    kernel = workload.sides[KERNEL]
    speedup, slowdown = workload.ratio(REFERENCE), workload.slowdown
    share, limit = workload.share(limits)
    return (
        time_text(kernel.median),
        f"{kernel.spread:.1%}",
        _side_text(workload, REFERENCE),
        "-" if speedup is None else f"{speedup:.2f}x",
        _side_text(workload, AGAINST),
        "-" if slowdown is None else change_text(workload),
        f"{share:.0%} of {limit}" if limit else "-",
    )


def change_text(workload: WorkloadResult) -> str:
    """The slowdown against the other build, with its error: `+4.2% ±0.5%`, `+4% ±2%`."""
    digits = 0 if workload.slowdown_error >= 0.01 else 1  # noqa: PLR2004 - a percent
    return f"{workload.slowdown or 0.0:+.{digits}%} ±{workload.slowdown_error:.{digits}%}"


def _side_text(workload: WorkloadResult, side: str) -> str:
    return time_text(workload.sides[side].median) if side in workload.sides else "-"


def limits_text(limits: DeviceLimits) -> str:
    """The limits in one line."""
    parts = [
        f"copy {rate / 1e9:.4g} GB/s" if name == COPY else f"{name} {rate / 1e12:.4g} TFLOP/s"
        for name, rate in limits.rates.items()
    ]
    return ", ".join(parts)
