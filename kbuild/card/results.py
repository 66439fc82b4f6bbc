"""Benchmark results: the JSON files that `kernels benchmark --output FILE` writes.

    {"results": [{"workload": "Relu.large", "verified": true,
                  "timingResults": {"mean_ms": 0.21, "std_ms": 0.01, "iterations": 100, ...}}],
     "machineInfo": {"gpu": "...", "backend": "CUDA 13.0", "pytorchVersion": "2.13.0", ...},
     "kernelCommitSha": "1a2b3c4", ...}

One thing may be added to what the client writes: `ref_mean_ms` in `timingResults`, the time of what
the kernel is compared with. Keys that are not named here are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.card.model import BenchmarkRun, CardError, Timing
from kbuild.errors import DamagedFileError
from kbuild.untrusted import parse_json, read_bytes, reading, reason_of

_HINT = "`kernels benchmark REPO --output FILE` writes such files"
_KIND = "benchmark results"
_SHORTEST, _LONGEST = 1e-9, 1e12
"""Milliseconds, between which a time is one that a chart can show."""
_NOT_THERE = {"", "N/A", "Unknown"}
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def read_results(folder: Path) -> tuple[BenchmarkRun, ...]:
    """The runs in a folder, in the order of their files' names; none when it is not there.

    Raises:
        CardError: a file is not what the client writes.
    """
    return tuple(_read(path) for path in sorted(folder.glob("*.json")) if path.is_file())


def _read(path: Path) -> BenchmarkRun:
    shown = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    try:
        with reading(shown, "benchmark results"):
            document = parse_json(read_bytes(path, _KIND), path, _KIND, strict=False)
            machine = document.get("machineInfo", {})
            return BenchmarkRun(
                name=_UNFIT.sub("-", path.stem),
                machine=_machine(machine),
                software=_software(machine),
                build=str(document.get("kernelCommitSha", "")),
                timings=_short(tuple(_timings(document["results"]))),
            )
    except (OSError, DamagedFileError) as error:
        words = f"{shown}: these are no benchmark results: {reason_of(error)}"
        raise CardError(words, hint=_HINT) from error


def _timings(results: list[Any]) -> Iterator[Timing]:
    """The workloads with a right result, in name order."""
    for entry in sorted(results, key=lambda entry: str(entry["workload"])):
        if entry.get("verified") is False:
            continue
        measured = entry["timingResults"]
        yield Timing(
            workload=str(entry["workload"]),
            mean=_time(measured["mean_ms"]),
            deviation=_optional(measured, "std_ms"),
            iterations=_count(measured.get("iterations")),
            reference=_optional(measured, "ref_mean_ms"),
        )


def _time(value: Any) -> float:
    time = float(value)
    if not _SHORTEST < time < _LONGEST:
        raise ValueError(f"{value} is no time")
    return time


def _optional(measured: Mapping[str, Any], key: str) -> float | None:
    value = measured.get(key)
    if value is None:
        return None
    return _deviation(value) if key == "std_ms" else _time(value)


def _deviation(value: Any) -> float | None:
    """None where one measurement has none."""
    deviation = float(value)
    return deviation if 0 <= deviation < _LONGEST else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _short(timings: tuple[Timing, ...]) -> tuple[Timing, ...]:
    """Without the benchmark's class in the names, when all have the same one."""
    owners = {timing.workload.rpartition(".")[0] for timing in timings}
    if len(owners) != 1 or owners == {""}:
        return timings
    return tuple(
        Timing(**{**vars(timing), "workload": timing.workload.rpartition(".")[2]})
        for timing in timings
    )


def _machine(info: Mapping[str, Any]) -> str:
    named = (str(info.get(key, "")) for key in ("gpu", "cpu"))
    return next((name for name in named if name not in _NOT_THERE), "an unnamed machine")


def _software(info: Mapping[str, Any]) -> str:
    torch, backend = (str(info.get(key, "")) for key in ("pytorchVersion", "backend"))
    parts = [f"Torch {torch}" * (torch not in _NOT_THERE), backend * (backend not in _NOT_THERE)]
    return ", ".join(part for part in parts if part)
