"""The end of a run: warnings.

An HTML report that needs no other file, and pruning of the object cache.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from kbuild import __version__
from kbuild.build.unit_log import UNIT_LOG_FILE, ImageRow, UnitLog, UnitRecord, read_log
from kbuild.checks.base import Output
from kbuild.checks.libraries import libraries_with_device_code
from kbuild.checks.readers.device_image import DeviceCodeSummary, summarize_images
from kbuild.system.budget import Budget, Run
from kbuild.system.cache import HEADERS_LIMIT, OBJECTS_LIMIT
from kbuild.system.cache_sweep import sweep_if_due
from kbuild.system.quantities import duration_text, memory_text
from kbuild.system.ui import Ui

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
_TICKS = 10
_HEIGHT = 100.0
_CLOCK_SECONDS = 0.05
"""Seconds by which consecutive units may overlap: a worker's times come by message."""
THIS_MACHINE = "this machine"


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One unit's bar; `left` and `width` in percent of the whole time."""

    unit: UnitRecord
    lane: int
    left: float
    width: float


@dataclass(frozen=True)
class TimelineTick:
    """A mark on the time axis."""

    left: float
    label: str


@dataclass(frozen=True)
class WorkerLanes:
    """Lanes of a machine, one below the other."""

    label: str
    first: int
    count: int


@dataclass(frozen=True)
class Timeline:
    """All bars, from the first unit's start to the last one's end."""

    bars: tuple[TimelineBar, ...]
    ticks: tuple[TimelineTick, ...]
    lanes: int
    seconds: float
    memory: str
    """Points of an SVG polygon, 100 x 100, of the memory of the units that run."""
    peak: float
    """MiB at the polygon's highest point, when every unit is at its own peak at once."""
    workers: tuple[WorkerLanes, ...] = ()
    """Empty for a build on this machine alone."""


def timeline(units: Sequence[UnitRecord]) -> Timeline:
    """The layout of a run's units, which are in the order of their start."""
    start = min((unit.start for unit in units), default=0.0)
    seconds = max((unit.end for unit in units), default=0.0) - start
    scale = 100 / seconds if seconds > 0 else 0.0
    places, workers = _lanes(units)
    bars = tuple(
        TimelineBar(unit, lane, (unit.start - start) * scale, unit.seconds * scale)
        for unit, lane in zip(units, places, strict=True)
    )
    lanes = sum(worker.count for worker in workers)
    steps = tuple(_memory_steps(units))
    peak = max((mib for _, mib in steps), default=0.0)
    polygon = _polygon([((when - start) * scale, mib) for when, mib in steps], peak)
    shown = workers if any(unit.worker for unit in units) else ()
    return Timeline(bars, _ticks(seconds), lanes, seconds, polygon, peak, shown)


def _lanes(units: Sequence[UnitRecord]) -> tuple[list[int], tuple[WorkerLanes, ...]]:
    """Give each unit the first free lane of its worker; return the lanes, and whose they are."""
    ends: dict[str, list[float]] = {}
    """Worker -> the times at which the last unit of each of its lanes ends."""
    own = []
    for unit in units:
        lanes = ends.setdefault(unit.worker, [])
        free = (n for n, end in enumerate(lanes) if end <= unit.start + _CLOCK_SECONDS)
        lane = next(free, len(lanes))
        lanes[lane : lane + 1] = [unit.end]
        own.append(lane)
    counts = [len(ends[worker]) for worker in sorted(ends)]
    firsts = dict(zip(sorted(ends), accumulate(counts, initial=0), strict=False))
    workers = tuple(
        WorkerLanes(worker or THIS_MACHINE, first, len(ends[worker]))
        for worker, first in firsts.items()
    )
    return [firsts[unit.worker] + lane for unit, lane in zip(units, own, strict=True)], workers


def _memory_steps(units: Iterable[UnitRecord]) -> Iterable[tuple[float, float]]:
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


def _ticks(seconds: float) -> tuple[TimelineTick, ...]:
    step = next((step for step in _STEPS if seconds / step <= _TICKS), _STEPS[-1])
    count = int(seconds / step) + 1 if seconds > 0 else 1
    return tuple(
        TimelineTick(100 * n * step / seconds if seconds else 0.0, _time_label(n * step))
        for n in range(count)
    )


def _time_label(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - seconds of a minute
        return f"{seconds:g} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    rest = int(seconds) % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_TEMPLATE = "report/build.html.j2"
_CHUNKS = 4096
"""Pieces of text that are joined at a time: a page of 13,000 units has a million."""
_COLORS = 8
"""Colours that the page has for variants."""


@dataclass(frozen=True)
class VariantOutcome:
    """The part of the report about one variant beside its units."""

    variant: str
    status: str
    seconds: float
    archs: tuple[str, ...] = ()
    folder: Path | None = None
    """The variant directory, when there is one."""
    images: tuple[ImageRow, ...] = ()
    """Images of kernels in Python DSLs."""


@dataclass(frozen=True)
class VariantRow:
    """A variant with the sums of its units."""

    outcome: VariantOutcome
    color: int
    objects: int
    hits: int
    cpu: float
    size: int
    """Bytes of the variant directory."""
    code: tuple[DeviceCodeSummary, ...] = ()
    """Device code for each GPU in its libraries, as the check `archs` reads it."""


@dataclass(frozen=True)
class HeadlineFigure:
    """A number worth a large font."""

    value: str
    label: str


def render_report(
    name: str,
    outcomes: Sequence[VariantOutcome],
    log: UnitLog,
    budget: Budget,
) -> str:
    """The page for the kernel `name`."""
    colors = {outcome.variant: index % _COLORS for index, outcome in enumerate(outcomes)}
    units = sorted((*log.units, *log.elsewhere), key=lambda unit: unit.start)
    layout = timeline(units)
    from kbuild.system.rendering import template_environment

    environment = template_environment(autoescape=True)
    environment.filters |= {"duration": duration_text, "memory": memory_text}
    page = environment.get_template(_TEMPLATE).stream(
        name=name,
        version=__version__,
        when=time.strftime("%Y-%m-%d %H:%M"),
        figures=_figures(log, layout),
        budget=_budget_text(budget),
        timeline=layout,
        colors=colors,
        variants=[_variant_row(outcome, colors, log) for outcome in outcomes],
        images=[(outcome.variant, row) for outcome in outcomes for row in outcome.images],
        units=sorted(log.units, key=lambda unit: -unit.cpu),
        notes=_notes(log),
    )
    page.enable_buffering(_CHUNKS)
    return "".join(page)


def _figures(log: UnitLog, layout: Timeline) -> tuple[HeadlineFigure, ...]:
    cpu = sum(unit.cpu for unit in log.units)
    peak = max((unit.peak for unit in log.units), default=0)
    figures = [
        HeadlineFigure(duration_text(layout.seconds), "from first unit to last"),
        HeadlineFigure(duration_text(cpu), "compilers' CPU time"),
        HeadlineFigure(f"{log.hits} of {len(log.objects)}", "objects from cache"),
    ]
    if peak:
        figures.append(HeadlineFigure(memory_text(peak), "largest compiler"))
    return tuple(figures)


def _budget_text(budget: Budget) -> str:
    processes = "process" if budget.jobs == 1 else "processes"
    return f"{budget.jobs} {processes} and {memory_text(budget.memory)} for all variants together"


def _variant_row(outcome: VariantOutcome, colors: dict[str, int], log: UnitLog) -> VariantRow:
    own = [unit for unit in log.units if unit.variant == outcome.variant]
    return VariantRow(
        outcome,
        colors[outcome.variant],
        objects=sum(1 for unit in own if not unit.image),
        hits=sum(1 for unit in own if unit.cache == "hit" and not unit.image),
        cpu=sum(unit.cpu for unit in own),
        size=_size_of(outcome.folder),
        code=_device_code_table(outcome.folder),
    )


def _size_of(folder: Path | None) -> int:
    if folder is None or not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _device_code_table(folder: Path | None) -> tuple[DeviceCodeSummary, ...]:
    if folder is None or not folder.is_dir():
        return ()
    holders = libraries_with_device_code(Output(folder, None))
    return summarize_images(image for holder in holders for image in holder.code.images)


def _notes(log: UnitLog) -> list[str]:
    """Notes that an author can act on."""
    notes = list(log.warnings)
    notes += [unit.killed for unit in log.units if unit.killed]
    notes += [
        f"{unit.unit} ({unit.variant}) is never cached: {unit.why}"
        for unit in log.units
        if unit.cache == "off" and unit.why.startswith("it uses")
    ]
    return list(dict.fromkeys(notes))


REPORT_FILE = "build.html"


def finish_run(
    name: str, folder: Path, outcomes: Sequence[VariantOutcome], run: Run, ui: Ui
) -> Mapping[str, tuple[int, int]]:
    """Per variant: objects made, and how many of them came from the cache.

    The page and the log of units of the kernel `name` go to `folder`.
    """
    log = read_log(run.log)
    for warning in (*log.warnings, *(unit.killed for unit in log.units if unit.killed)):
        ui.warn(warning)
    if log.units or any(outcome.images for outcome in outcomes):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run.log, folder / UNIT_LOG_FILE)
            (folder / REPORT_FILE).write_text(
                render_report(name, outcomes, log, run.budget), encoding="utf-8"
            )
        except OSError as error:
            ui.warn(f"the report of the build could not be kept: {error}")
    if run.keeps and any(unit.cache == "miss" for unit in (*log.units, *log.elsewhere)):
        # Without precompiled headers, those of other builds are left alone.
        headers = {HEADERS_LIMIT: run.headers} if run.headers else {}
        sweep_if_due(run.cache, {OBJECTS_LIMIT: run.limit, **headers})
    return {outcome.variant: _object_counts(log, outcome.variant) for outcome in outcomes}


def _object_counts(log: UnitLog, variant: str) -> tuple[int, int]:
    objects = [unit for unit in log.objects if unit.variant == variant and unit.status == 0]
    return len(objects), sum(1 for unit in objects if unit.cache == "hit")
