"""What a run's units took, read from the log that their launchers wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from kbuild.untrusted import objects_in

LOG = "units.jsonl"
"""Name of the log in the folder of the last build's report."""

Outcome = Literal["hit", "miss", "off"]
_ENDLESS = 1e15
"""Nothing in a log is as large: neither bytes, seconds nor MiB."""


@dataclass(frozen=True)
class Unit:
    """One translation unit of one variant."""

    unit: str
    """The source, relative to the project."""
    variant: str
    language: str
    start: float
    """Seconds since the epoch; the compiler's start, or the look-up's when it was found."""
    end: float
    status: int
    cache: Outcome
    why: str = ""
    """Why the cache could not be used."""
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
    paused: float = 0.0
    """Seconds for which it was halted, because others needed the memory."""
    restarts: int = 0
    """How often it was ended for others and started again."""
    headers: int = 0
    """Files that it was made from."""
    torch: int = 0
    """Those of them that are Torch's."""
    kib: int = 0
    """Size of Torch's, when the unit was compiled."""
    record: str = ""
    """The object cache's record of all of them; empty when the object was not kept."""
    image: bool = False
    """True for an image of a kernel in a Python DSL, which a worker compiled."""
    changed: str = ""
    """An input that changed while the unit was compiled, which was then done again."""
    killed: str = ""
    """Not empty when the system killed the compiler: what happened, in words."""

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

    units: tuple[Unit, ...] = ()
    warnings: tuple[str, ...] = ()
    """Each once: what the cache or the ledger could not do."""

    @property
    def objects(self) -> tuple[Unit, ...]:
        """What a C++ or device compiler made; images are counted apart."""
        return tuple(unit for unit in self.units if not unit.image)

    @property
    def hits(self) -> int:
        """Objects that came from the cache."""
        return sum(1 for unit in self.objects if unit.cache == "hit")

    @property
    def summary(self) -> str:
        """`31 of 34 objects from cache`; empty when nothing was compiled or looked up."""
        made = sum(1 for unit in self.objects if unit.status == 0)
        noun = "object" if made == 1 else "objects"
        return f"{self.hits} of {made} {noun} from cache" if made else ""


def read_log(path: Path) -> UnitLog:
    """The log's units in the order of their start; lines that are none are left out."""
    records = list(_records(path))
    units = [unit for record in records if (unit := _unit(record)) is not None]
    warnings = dict.fromkeys(str(record["warning"]) for record in records if "warning" in record)
    ordered = sorted(units, key=lambda unit: (unit.start, unit.unit))
    return UnitLog(tuple(ordered), tuple(warnings))


def _unit(record: Mapping[str, Any]) -> Unit | None:
    """None of a record whose values are not of a unit's types."""
    given = {field: record[field.name] for field in fields(Unit) if field.name in record}
    fitting = all(_fits(value, str(field.type)) for field, value in given.items())
    required = all(field.name in record for field in fields(Unit) if field.default is MISSING)
    if not (fitting and required):
        return None
    return Unit(**{field.name: value for field, value in given.items()})


def _fits(value: object, kind: str) -> bool:
    if kind == "float":
        return isinstance(value, (int, float)) and abs(value) < _ENDLESS
    if kind == "int":
        return isinstance(value, int) and abs(value) < _ENDLESS
    return isinstance(value, bool if kind == "bool" else str)


def _records(path: Path) -> Iterable[dict[str, Any]]:
    """The lines that are objects: the disk may have been full."""
    return objects_in(path, "a log of units")
