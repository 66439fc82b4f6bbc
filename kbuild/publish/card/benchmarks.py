"""Benchmark results: reads what `kbuild bench` or `kernels benchmark` writes, draws a chart (SVG).

The chart is for an `<img>`: it has its own background, follows the reader's colour scheme, and says
in words what it shows. One key may be added to what the client writes: `ref_mean_ms` in
`timingResults`, the time of what the kernel is compared with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.publish.card.model import BenchmarkRun, CardError, Timing
from kbuild.system.errors import DamagedFileError
from kbuild.system.quantities import time_text
from kbuild.system.untrusted import parse_json, read_bytes, reading, reason_of

_RESULTS_HINT = "`kbuild bench --output FILE` writes such files"
_RESULTS_KIND = "benchmark results"
_MIN_TIME_MS, _MAX_TIME_MS = 1e-9, 1e12
"""Milliseconds, between which a time is one that a chart can show."""
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
            return run_of(document, path.stem)
    except (OSError, DamagedFileError) as error:
        message = f"{shown}: not benchmark results: {reason_of(error)}"
        raise CardError(message, hint=_RESULTS_HINT) from error


def run_of(document: Mapping[str, Any], name: str) -> BenchmarkRun:
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


_CHART_TEMPLATE = "card/chart.svg.j2"
_LEFT, _RIGHT, _WIDTH = 190, 590, 760
_TOP, _ROW_HEIGHT, _FOOTER_HEIGHT = 78, 34, 44
_MAX_LABEL = 18
"""Characters: wide ones fit as well."""
_MIN_TICK_DISTANCE = 26
"""Pixels between two labels of the axis, at least."""
_TIMES_SIGN = "\N{MULTIPLICATION SIGN}"
_LOGARITHMIC = 20.0
"""Beyond this ratio of the longest to the shortest time, a linear axis hides the short ones."""


@dataclass(frozen=True)
class ChartBar:
    """One workload."""

    y: int
    label: str
    name: str
    """Full name."""
    x: float
    value: str
    detail: str
    """The same in a sentence."""


@dataclass(frozen=True)
class ChartTick:
    """One line of the grid."""

    x: float
    label: str
    is_base: bool = False
    """True for the line that bars are compared with."""


@dataclass(frozen=True)
class BenchmarkChart:
    """Everything that the template places."""

    title: str
    subtitle: str
    axis: str
    bars: tuple[ChartBar, ...]
    ticks: tuple[ChartTick, ...]
    dots: bool
    """True where the axis does not begin at zero, so that lengths mean nothing."""

    @property
    def height(self) -> int:
        """Height of the whole picture, in pixels."""
        return _TOP + _ROW_HEIGHT * len(self.bars) + _FOOTER_HEIGHT

    @property
    def bottom(self) -> int:
        """The lower end of the grid."""
        return _TOP + _ROW_HEIGHT * len(self.bars)

    @property
    def description(self) -> str:
        """The picture in words, for readers who do not see it."""
        return " ".join(bar.detail for bar in self.bars)


def chart_svg(run: BenchmarkRun, kernel: str) -> str:
    """The picture; empty when nothing was measured."""
    from kbuild.system.rendering import template_environment

    if not run.timings:
        return ""
    template = template_environment(autoescape=True).get_template(_CHART_TEMPLATE)
    chart = make_chart(run, kernel)
    return template.render(chart=chart, left=_LEFT, right=_RIGHT, width=_WIDTH, top=_TOP)


def make_chart(run: BenchmarkRun, kernel: str) -> BenchmarkChart:
    """Make the chart: speed-ups when every workload has a reference, times otherwise."""
    subtitle = ", ".join(part for part in (run.machine, run.software) if part)
    speedups = [timing.speedup for timing in run.timings if timing.speedup is not None]
    if len(speedups) == len(run.timings):
        return _speedup_chart(run.timings, speedups, f"{kernel}: speed-up", subtitle)
    return _time_chart(run.timings, f"{kernel}: time per call", subtitle)


def _speedup_chart(
    timings: Sequence[Timing], speedups: Sequence[float], title: str, subtitle: str
) -> BenchmarkChart:
    step = _round_step(max(*speedups, 1.0))
    end = step * math.ceil(max(*speedups, 1.0) / step)
    bars = tuple(
        _make_bar(
            at,
            timing,
            _x_position(speedup, end),
            f"{speedup:.2f}{_TIMES_SIGN}",
            _comparison_sentence(timing, speedup),
        )
        for at, (timing, speedup) in enumerate(zip(timings, speedups, strict=True))
    )
    marks = {round(step * n, 6) for n in range(round(end / step) + 1)} | {1.0}
    base = _x_position(1.0, end)
    ticks = tuple(
        ChartTick(_x_position(mark, end), f"{mark:g}{_TIMES_SIGN}", is_base=mark == 1.0)
        for mark in sorted(marks)
        if mark == 1.0 or abs(_x_position(mark, end) - base) >= _MIN_TICK_DISTANCE
    )
    axis = f"times as fast as the reference, which is 1{_TIMES_SIGN}"
    return BenchmarkChart(title, subtitle, axis, bars, ticks, dots=False)


def _time_chart(timings: Sequence[Timing], title: str, subtitle: str) -> BenchmarkChart:
    means = [timing.time for timing in timings]
    dots = max(means) / min(means) > _LOGARITHMIC
    low, high = math.floor(math.log10(min(means))), math.ceil(math.log10(max(means)))
    step = _round_step(max(means))
    end = step * math.ceil(max(means) / step)

    def place(time: float) -> float:
        if not dots:
            return _x_position(time, end)
        return _x_position(math.log10(time) - low, high - low)

    bars = tuple(
        _make_bar(at, timing, place(timing.time), time_text(timing.time), _time_sentence(timing))
        for at, timing in enumerate(timings)
    )
    steps = [step * n for n in range(1, round(end / step) + 1)]
    marks = [10.0**n for n in range(low, high + 1)] if dots else steps
    ticks = tuple(ChartTick(place(mark), time_text(mark)) for mark in marks)
    axis = "time per call, each line ten times the one before" if dots else "time per call"
    return BenchmarkChart(title, subtitle, axis, bars, ticks, dots=dots)


def _make_bar(at: int, timing: Timing, x: float, value: str, detail: str) -> ChartBar:
    name = timing.workload
    label = name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 1]}…"
    return ChartBar(_TOP + _ROW_HEIGHT * at, label, name, round(x, 1), value, detail)


def _comparison_sentence(timing: Timing, speedup: float) -> str:
    reference = time_text(timing.reference or 0.0)
    own = time_text(timing.time)
    return f"{timing.workload}: {own} against {reference}, {speedup:.2f} times as fast."


def _time_sentence(timing: Timing) -> str:
    return f"{timing.workload}: {time_text(timing.time)}."


def _x_position(value: float, end: float) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * value / end, 1)


def _round_step(largest: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives three to six lines."""
    rough = largest / 4
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
