"""Reads benchmark results that `kbuild bench` or `kernels benchmark` wrote.

One key may be added to what the client writes: `ref_mean_ms` in `timingResults`, the time of what
the kernel is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.publish.card.model import BenchmarkRun, CardError, Timing
from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import parse_json, read_bytes, reading, reason_of

_RESULTS_HINT = "`kbuild bench --output FILE` writes such files"
_RESULTS_KIND = "benchmark results"
_MIN_TIME_MS, _MAX_TIME_MS = 1e-9, 1e12
"""Milliseconds, between which a time is one."""
_UNKNOWN_VALUES = {"", "N/A", "Unknown"}
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")


def read_results(folder: Path) -> tuple[BenchmarkRun, ...]:
    """The runs in a folder, in the order of their files' names; none when it is not there.

    Raises:
        CardError: a file is not what the client writes.
    """
    return tuple(_read_run(path) for path in sorted(folder.glob("*.json")) if path.is_file())


def _read_run(path: Path) -> BenchmarkRun:
    shown = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    try:
        with reading(shown, "benchmark results"):
            document = parse_json(
                read_bytes(path, _RESULTS_KIND), path, _RESULTS_KIND, strict=False
            )
            return _run_of(document, path.stem)
    except (OSError, DamagedFileError) as error:
        message = f"{shown}: not benchmark results: {reason_of(error)}"
        raise CardError(message, hint=_RESULTS_HINT) from error


def _run_of(document: Mapping[str, Any], name: str) -> BenchmarkRun:
    """The run of a file of results; errors are those of a dictionary that lacks keys."""
    machine = document.get("machineInfo", {})
    named = (str(machine.get(key, "")) for key in ("gpu", "cpu"))
    return BenchmarkRun(
        name=_UNSAFE_CHARACTERS.sub("-", name),
        machine=next((name for name in named if name not in _UNKNOWN_VALUES), "an unnamed machine"),
        software=_software_text(machine),
        build=str(document.get("kernelCommitSha", "")),
        timings=_strip_common_class(tuple(_read_timings(document["results"]))),
    )


def _read_timings(results: list[Any]) -> Iterator[Timing]:
    """The workloads with a right result, in name order."""
    for entry in sorted(results, key=lambda entry: str(entry["workload"])):
        if entry.get("verified") is False:
            continue
        measured = entry["timingResults"]
        value = measured.get("iterations")
        time, deviation = _read_time(measured["mean_ms"]), _read_deviation(measured, "std_ms")
        reference = _read_optional(measured, "ref_mean_ms")
        if "median_ms" in measured:  # `kbuild bench` wrote it, whose table has these figures
            time, spread = _read_time(measured["median_ms"]), _read_deviation(measured, "iqr_ms")
            deviation = None if spread is None else spread / 2
            reference = _read_optional(entry.get("reference", {}), "median_ms")
        yield Timing(
            workload=str(entry["workload"]),
            time=time,
            deviation=deviation,
            iterations=value if isinstance(value, int) else None,
            reference=reference,
            ratio=_read_optional(entry, "speedup"),
        )


def _read_time(value: Any) -> float:
    time = float(value)
    if not _MIN_TIME_MS < time < _MAX_TIME_MS:
        raise ValueError(f"{value} is not a time")
    return time


def _read_optional(measured: Mapping[str, Any], key: str) -> float | None:
    value = measured.get(key)
    return None if value is None else _read_time(value)


def _read_deviation(measured: Mapping[str, Any], key: str) -> float | None:
    """None where one measurement has none."""
    deviation = float(measured.get(key, -1))
    return deviation if 0 <= deviation < _MAX_TIME_MS else None


def _strip_common_class(timings: tuple[Timing, ...]) -> tuple[Timing, ...]:
    """Names without the benchmark's class, if all have the same one."""
    owners = {timing.workload.rpartition(".")[0] for timing in timings}
    if len(owners) != 1 or owners == {""}:
        return timings
    return tuple(
        Timing(**{**vars(timing), "workload": timing.workload.rpartition(".")[2]})
        for timing in timings
    )


def _software_text(info: Mapping[str, Any]) -> str:
    torch, backend = (str(info.get(key, "")) for key in ("pytorchVersion", "backend"))
    parts = [
        f"Torch {torch}" * (torch not in _UNKNOWN_VALUES),
        backend * (backend not in _UNKNOWN_VALUES),
    ]
    return ", ".join(part for part in parts if part)
