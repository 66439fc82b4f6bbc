"""A run's chart as SVG: how many times faster than the reference, or the time of each workload.

Drawn for an `<img>`: it has a ground of its own, so that it can be read on a light page and on a
dark one, follows the reader's colour scheme, and says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.card.model import BenchmarkRun, Timing
from kbuild.card.sections import time_text

_TEMPLATE = "card/chart.svg.j2"
_LEFT, _RIGHT, _WIDTH = 190, 590, 760
_TOP, _STEP, _FOOT = 78, 34, 44
_LABEL = 18
"""Characters: wide ones fit as well."""
_APART = 26
"""Pixels between two labels of the axis, at least."""
_TIMES = "\N{MULTIPLICATION SIGN}"
_LOGARITHMIC = 20.0
"""Beyond this ratio of the longest to the shortest time, a linear axis hides the short ones."""


@dataclass(frozen=True)
class Bar:
    """One workload."""

    y: int
    label: str
    name: str
    """In full."""
    x: float
    value: str
    detail: str
    """The same in a sentence."""


@dataclass(frozen=True)
class Tick:
    """One line of the grid."""

    x: float
    label: str
    is_base: bool = False
    """True for the line that bars are compared with."""


@dataclass(frozen=True)
class Chart:
    """Everything that the template places."""

    title: str
    subtitle: str
    axis: str
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    dots: bool
    """True where the axis does not begin at zero, so that lengths mean nothing."""

    @property
    def height(self) -> int:
        """Of the whole picture, in pixels."""
        return _TOP + _STEP * len(self.bars) + _FOOT

    @property
    def bottom(self) -> int:
        """Where the grid ends."""
        return _TOP + _STEP * len(self.bars)

    @property
    def description(self) -> str:
        """What the picture shows, for those who do not see it."""
        return " ".join(bar.detail for bar in self.bars)


def chart_svg(run: BenchmarkRun, kernel: str) -> str:
    """The picture; empty when nothing was measured."""
    from kbuild.generate.templates import template_environment

    if not run.timings:
        return ""
    template = template_environment(autoescape=True).get_template(_TEMPLATE)
    chart = chart_of(run, kernel)
    return template.render(chart=chart, left=_LEFT, right=_RIGHT, width=_WIDTH, top=_TOP)


def chart_of(run: BenchmarkRun, kernel: str) -> Chart:
    """What is drawn: speed-ups when every workload has a reference, times otherwise."""
    subtitle = ", ".join(part for part in (run.machine, run.software) if part)
    speedups = [timing.speedup for timing in run.timings if timing.speedup is not None]
    if len(speedups) == len(run.timings):
        return _speedups(run.timings, speedups, f"{kernel}: speed-up", subtitle)
    return _times(run.timings, f"{kernel}: time per call", subtitle)


def _speedups(
    timings: Sequence[Timing], speedups: Sequence[float], title: str, subtitle: str
) -> Chart:
    step = _round_step(max(*speedups, 1.0))
    end = step * math.ceil(max(*speedups, 1.0) / step)
    bars = tuple(
        _bar(at, timing, _linear(speedup, end), _factor(speedup), _compared(timing, speedup))
        for at, (timing, speedup) in enumerate(zip(timings, speedups, strict=True))
    )
    marks = {round(step * n, 6) for n in range(round(end / step) + 1)} | {1.0}
    base = _linear(1.0, end)
    ticks = tuple(
        Tick(_linear(mark, end), f"{mark:g}{_TIMES}", is_base=mark == 1.0)
        for mark in sorted(marks)
        if mark == 1.0 or abs(_linear(mark, end) - base) >= _APART
    )
    axis = f"times as fast as the reference, which is 1{_TIMES}"
    return Chart(title, subtitle, axis, bars, ticks, dots=False)


def _times(timings: Sequence[Timing], title: str, subtitle: str) -> Chart:
    means = [timing.mean for timing in timings]
    dots = max(means) / min(means) > _LOGARITHMIC
    low, high = math.floor(math.log10(min(means))), math.ceil(math.log10(max(means)))
    step = _round_step(max(means))
    end = step * math.ceil(max(means) / step)

    def place(time: float) -> float:
        if not dots:
            return _linear(time, end)
        return _linear(math.log10(time) - low, high - low)

    bars = tuple(
        _bar(at, timing, place(timing.mean), time_text(timing.mean), _timed(timing))
        for at, timing in enumerate(timings)
    )
    steps = [step * n for n in range(1, round(end / step) + 1)]
    marks = [10.0**n for n in range(low, high + 1)] if dots else steps
    ticks = tuple(Tick(place(mark), time_text(mark)) for mark in marks)
    axis = "time per call, each line ten times the one before" if dots else "time per call"
    return Chart(title, subtitle, axis, bars, ticks, dots=dots)


def _bar(at: int, timing: Timing, x: float, value: str, detail: str) -> Bar:
    name = timing.workload
    label = name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"
    return Bar(_TOP + _STEP * at, label, name, round(x, 1), value, detail)


def _factor(speedup: float) -> str:
    return f"{speedup:.2f}{_TIMES}"


def _compared(timing: Timing, speedup: float) -> str:
    reference = time_text(timing.reference or 0.0)
    mean = time_text(timing.mean)
    return f"{timing.workload}: {mean} against {reference}, {speedup:.2f} times as fast."


def _timed(timing: Timing) -> str:
    return f"{timing.workload}: {time_text(timing.mean)}."


def _linear(value: float, end: float) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * value / end, 1)


def _round_step(largest: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives three to six lines."""
    rough = largest / 4
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
