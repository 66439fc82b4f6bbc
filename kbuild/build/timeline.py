"""Units laid out over time: who ran beside whom, and how much memory they took together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbuild.build.units import Unit

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
_TICKS = 10
_HEIGHT = 100.0


@dataclass(frozen=True)
class Bar:
    """One unit's bar; `left` and `width` in percent of the whole time."""

    unit: Unit
    lane: int
    left: float
    width: float


@dataclass(frozen=True)
class Tick:
    """A mark on the time axis."""

    left: float
    label: str


@dataclass(frozen=True)
class Timeline:
    """All bars, from the first unit's start to the last one's end."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    lanes: int
    seconds: float
    memory: str
    """Points of an SVG polygon, 100 x 100, of the memory of the units that run."""
    peak: float
    """MiB at the polygon's highest point, when every unit is at its own peak at once."""


def timeline(units: Sequence[Unit]) -> Timeline:
    """The layout of a run's units, which are in the order of their start."""
    start = min((unit.start for unit in units), default=0.0)
    seconds = max((unit.end for unit in units), default=0.0) - start
    scale = 100 / seconds if seconds > 0 else 0.0
    bars = tuple(
        Bar(unit, lane, (unit.start - start) * scale, unit.seconds * scale)
        for unit, lane in zip(units, _lanes(units), strict=True)
    )
    lanes = max((bar.lane + 1 for bar in bars), default=0)
    steps = tuple(_memory(units))
    peak = max((mib for _, mib in steps), default=0.0)
    polygon = _polygon([((when - start) * scale, mib) for when, mib in steps], peak)
    return Timeline(bars, _ticks(seconds), lanes, seconds, polygon, peak)


def _lanes(units: Iterable[Unit]) -> list[int]:
    """For each unit the first lane that is free at its start."""
    ends: list[float] = []
    chosen = []
    for unit in units:
        lane = next((n for n, end in enumerate(ends) if end <= unit.start), len(ends))
        ends[lane : lane + 1] = [unit.end]
        chosen.append(lane)
    return chosen


def _memory(units: Iterable[Unit]) -> Iterable[tuple[float, float]]:
    """(when, MiB from then on)."""
    changes = [(unit.start, unit.peak) for unit in units if unit.peak]
    changes += [(unit.end, -unit.peak) for unit in units if unit.peak]
    total = 0
    for when, change in sorted(changes):
        total += change
        yield when, total


def _polygon(steps: Sequence[tuple[float, float]], peak: float) -> str:
    points, height = [(0.0, _HEIGHT)], _HEIGHT
    for x, mib in steps:
        points.append((x, height))
        height = _HEIGHT * (1 - mib / peak) if peak else _HEIGHT
        points.append((x, height))
    points.append((100.0, height))
    points.append((100.0, _HEIGHT))
    return " ".join(f"{x:.2f},{y:.1f}" for x, y in points)


def _ticks(seconds: float) -> tuple[Tick, ...]:
    step = next((step for step in _STEPS if seconds / step <= _TICKS), _STEPS[-1])
    count = int(seconds / step) + 1 if seconds > 0 else 1
    return tuple(
        Tick(100 * n * step / seconds if seconds else 0.0, _moment(n * step)) for n in range(count)
    )


def _moment(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - seconds of a minute
        return f"{seconds:g} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    rest = int(seconds) % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
