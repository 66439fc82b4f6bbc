"""The report of a run: one HTML page that needs nothing else, for a browser or a CI artefact."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild import __version__
from kbuild.advice.measurements import measured_with
from kbuild.advice.savings import Bill, Change, bills
from kbuild.build.budget import Budget
from kbuild.build.images import ImageRow
from kbuild.build.quantity import duration_text, memory_text
from kbuild.build.recorded import torch_headers
from kbuild.build.timeline import Timeline, timeline
from kbuild.build.units import Unit, UnitLog
from kbuild.checks.base import Output
from kbuild.checks.readers.image import Line, table
from kbuild.checks.readers.libraries import device_code

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATE = "report/build.html.j2"
_COLORS = 8
"""Colours that the page has for variants."""
_WORTH = 0.01
"""A change that saves less than this share of the CPU time is not worth a line."""


@dataclass(frozen=True)
class VariantOutcome:
    """What the report says of one variant beside its units."""

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
    """One variant with what its units add up to."""

    outcome: VariantOutcome
    color: int
    made: int
    hits: int
    cpu: float
    size: int
    """Bytes of the variant directory."""
    code: tuple[Line, ...] = ()
    """What its libraries hold for every GPU, as the check `archs` reads it."""


@dataclass(frozen=True)
class Proposal:
    """A change to one source, and what it saves over all variants."""

    unit: str
    language: str
    header: str
    cpu: float
    """CPU seconds that the source took."""
    share: float
    """Of them for Torch's headers, at most."""
    changes: tuple[Change, ...]
    """Largest saving first."""


@dataclass(frozen=True)
class Figure:
    """A number worth a large font."""

    value: str
    label: str


def render(name: str, outcomes: Sequence[VariantOutcome], log: UnitLog, budget: Budget) -> str:
    """The page for the kernel `name`."""
    headers = bills(log.units, torch_headers(log.units))
    colors = {outcome.variant: index % _COLORS for index, outcome in enumerate(outcomes)}
    layout = timeline(log.units)
    return (
        _environment()
        .get_template(_TEMPLATE)
        .render(
            name=name,
            version=__version__,
            when=time.strftime("%Y-%m-%d %H:%M"),
            figures=_figures(log, layout),
            budget=_budget_text(budget),
            timeline=layout,
            colors=colors,
            variants=[_row(outcome, colors, log) for outcome in outcomes],
            images=[(one.variant, row) for one in outcomes for row in one.images],
            units=sorted(log.units, key=lambda unit: -unit.cpu),
            bills={bill.unit: bill for bill in headers},
            cheaper=_cheaper(headers, log),
            measured=measured_with(),
            notes=tuple(_notes(log)),
        )
    )


def _cheaper(found: Sequence[Bill[Unit]], log: UnitLog) -> list[Proposal]:
    """What each source could save, the largest first; its variants are counted together."""
    groups: dict[tuple[str, str, str], list[Bill[Unit]]] = {}
    for bill in found:
        if bill.changes:
            groups.setdefault((bill.unit.unit, bill.unit.language, bill.header), []).append(bill)
    total = sum(unit.cpu for unit in log.units)
    made = [_proposal(*key, group) for key, group in groups.items()]
    worth = [one for one in made if one.changes[0].saves >= _WORTH * total]
    return sorted(worth, key=lambda one: -one.changes[0].saves)


def _proposal(unit: str, language: str, header: str, group: Sequence[Bill[Unit]]) -> Proposal:
    saved: dict[str, float] = {}
    for bill in group:
        for change in bill.changes:
            saved[change.advice] = saved.get(change.advice, 0.0) + change.saves
    cpu = sum(bill.unit.cpu for bill in group)
    paid = sum((bill.share or 0.0) * bill.unit.cpu for bill in group)
    changes = [Change(advice, saves) for advice, saves in saved.items()]
    ordered = tuple(sorted(changes, key=lambda change: -change.saves))
    return Proposal(unit, language, header, cpu, paid / cpu, ordered)


def _figures(log: UnitLog, layout: Timeline) -> tuple[Figure, ...]:
    cpu = sum(unit.cpu for unit in log.units)
    peak = max((unit.peak for unit in log.units), default=0)
    figures = [
        Figure(duration_text(layout.seconds), "from first unit to last"),
        Figure(duration_text(cpu), "compilers' CPU time"),
        Figure(f"{log.hits} of {len(log.objects)}", "objects from cache"),
    ]
    if peak:
        figures.append(Figure(memory_text(peak), "largest compiler"))
    return tuple(figures)


def _budget_text(budget: Budget) -> str:
    processes = "process" if budget.jobs == 1 else "processes"
    return f"{budget.jobs} {processes} and {memory_text(budget.memory)} for all variants together"


def _row(outcome: VariantOutcome, colors: dict[str, int], log: UnitLog) -> VariantRow:
    own = [unit for unit in log.units if unit.variant == outcome.variant]
    return VariantRow(
        outcome,
        colors[outcome.variant],
        made=sum(1 for unit in own if not unit.image),
        hits=sum(1 for unit in own if unit.cache == "hit" and not unit.image),
        cpu=sum(unit.cpu for unit in own),
        size=_size_of(outcome.folder),
        code=_code_of(outcome.folder),
    )


def _size_of(folder: Path | None) -> int:
    if folder is None or not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _code_of(folder: Path | None) -> tuple[Line, ...]:
    if folder is None or not folder.is_dir():
        return ()
    holders = device_code(Output(folder, None))
    return table(image for holder in holders for image in holder.code.images)


def _notes(log: UnitLog) -> list[str]:
    """What an author could act on."""
    notes = list(log.warnings)
    notes += [unit.killed for unit in log.units if unit.killed]
    notes += [
        f"{unit.unit} ({unit.variant}) is never cached: {unit.why}"
        for unit in log.units
        if unit.cache == "off" and unit.why.startswith("it uses")
    ]
    return list(dict.fromkeys(notes))


def _environment() -> Environment:
    from kbuild.generate.templates import template_environment

    environment = template_environment(autoescape=True)
    environment.filters |= {"duration": duration_text, "memory": memory_text}
    return environment
