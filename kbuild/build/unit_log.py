"""The units of a run, from the log that launchers wrote.

The log of the last build stays in `.kbuild/report`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from sys import intern
from typing import Any, Literal

from kbuild.system.budget import Run
from kbuild.system.cache import HEADERS_LIMIT, OBJECTS_LIMIT
from kbuild.system.cache_sweep import sweep_if_due
from kbuild.system.quantities import memory_text
from kbuild.system.ui import Ui
from kbuild.system.untrusted import read_json_lines

UNIT_LOG_FILE = "units.jsonl"
"""Name of the log in the folder of the last build's report."""

CacheOutcome = Literal["hit", "miss", "off"]
_ENDLESS = 1e15
"""Larger than any value in a log, be it bytes, seconds or MiB."""


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """One translation unit of one variant."""

    unit: str
    """The source, relative to the project."""
    variant: str
    language: str
    start: float
    """Seconds since the epoch; the compiler's start, or the look-up's when it was found."""
    end: float
    status: int
    cache: CacheOutcome
    why: str = ""
    user: float = 0.0
    system: float = 0.0
    peak: int = 0
    """MiB of the compilation's largest process."""
    weight: int = 0
    """MiB that were reserved for each of its threads."""
    threads: int = 1
    """Architectures that nvcc might compile at a time."""
    archs: int = 1
    """Architectures that it was compiled for."""
    waited: float = 0.0
    """Seconds for which it waited for memory."""
    restarts: int = 0
    """Number of times that it was ended for others and started again."""
    headers: int = 0
    """Number of files that the object was made from."""
    torch: int = 0
    """Files among them that are Torch's."""
    kib: int = 0
    """Size of Torch's, when the unit was compiled."""
    precompiled: str = ""
    """`used` if the unit began with precompiled headers, `made` if it compiled them before."""
    precompiling: float = 0.0
    """Processor time of making them, which is no part of its own."""
    image: bool = False
    """True for an image of a kernel in a Python DSL, which a worker compiled."""
    changed: str = ""
    """An input that changed while the unit was compiled, which was then done again."""
    worker: str = ""
    """The machine that made it: the unit is then in the log a second time, from the cache."""
    killed: str = ""
    """Reason why the system killed the compiler; empty if it did not."""

    @property
    def seconds(self) -> float:
        """Wall time."""
        return self.end - self.start

    @property
    def cpu(self) -> float:
        """Processor time."""
        return self.user + self.system


@dataclass(frozen=True)
class UnitLog:
    """A whole run."""

    units: tuple[UnitRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    """Each once: what the cache or the ledger could not do."""
    elsewhere: tuple[UnitRecord, ...] = ()
    """Units that other machines compiled."""

    @property
    def objects(self) -> tuple[UnitRecord, ...]:
        """The units of C++ and device compilers; images are counted apart."""
        return tuple(unit for unit in self.units if not unit.image)

    def counts(self, variant: str) -> tuple[int, int]:
        """Objects of a variant that were made, and how many of them came from the cache."""
        own = [unit for unit in self.objects if unit.variant == variant and unit.status == 0]
        return len(own), sum(1 for unit in own if unit.cache == "hit")


def read_log(path: Path) -> UnitLog:
    """The log's units in the order of their start; lines that are none are left out."""
    units: list[UnitRecord] = []
    warnings: dict[str, None] = {}
    for record in read_json_lines(path, "a log of units"):  # the disk may have been full
        unit = _unit_of_record(record)
        if unit is not None:
            units.append(unit)
        if "warning" in record:
            warnings[str(record["warning"])] = None
    # Launchers write when a unit has ended, so the lines are in the order of the ends.
    ordered = sorted(units, key=lambda unit: (unit.start, unit.unit))
    here = tuple(unit for unit in ordered if not unit.worker)
    return UnitLog(here, tuple(warnings), tuple(unit for unit in ordered if unit.worker))


def finish_run(folder: Path, run: Run, ui: Ui) -> UnitLog:
    """Print the warnings of launchers, keep the log in `folder`, and sweep the cache."""
    log = read_log(run.log)
    for warning in (*log.warnings, *(unit.killed for unit in log.units if unit.killed)):
        ui.warn(warning)
    if log.units:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run.log, folder / UNIT_LOG_FILE)
        except OSError as error:
            ui.warn(f"the log of the build could not be kept: {error}")
    if run.keeps and any(unit.cache == "miss" for unit in (*log.units, *log.elsewhere)):
        # Without precompiled headers, those of other builds are left alone.
        headers = {HEADERS_LIMIT: run.headers} if run.headers else {}
        sweep_if_due(run.cache, {OBJECTS_LIMIT: run.limit, **headers})
    return log


def print_units(folder: Path, ui: Ui) -> None:
    """Print the units of the log in `folder`, those first that took longest."""
    file = folder / UNIT_LOG_FILE
    if not file.is_file():
        ui.say("report: nothing was compiled yet")
        return
    rows = [
        (
            unit.unit,
            unit.variant,
            f"{unit.cpu:.1f}",
            memory_text(unit.peak) if unit.peak else "-",
            f"{unit.torch} of {unit.headers}",
            unit.cache + (f": {unit.why}" if unit.why else ""),
        )
        for unit in sorted(read_log(file).units, key=lambda unit: -unit.cpu)
    ]
    ui.table(("unit", "variant", "CPU seconds", "memory", "headers of Torch", "cache"), rows)


def _unit_of_record(record: Mapping[str, Any]) -> UnitRecord | None:
    """Parse a record; None if a value has another type. Equal texts become one object in memory."""
    values_by_field = {
        field: record[field.name] for field in fields(UnitRecord) if field.name in record
    }
    # Annotations are not evaluated in this module, so a field's type is its text.
    fitting = all(_fits(value, str(field.type)) for field, value in values_by_field.items())
    required = all(field.name in record for field in fields(UnitRecord) if field.default is MISSING)
    if not (fitting and required):
        return None
    shared: dict[str, Any] = {
        field.name: intern(value) if isinstance(value, str) else value
        for field, value in values_by_field.items()
    }
    return UnitRecord(**shared)


def _fits(value: object, kind: str) -> bool:
    if kind == "float":
        return isinstance(value, (int, float)) and abs(value) < _ENDLESS
    if kind == "int":
        return isinstance(value, int) and abs(value) < _ENDLESS
    return isinstance(value, bool if kind == "bool" else str)
