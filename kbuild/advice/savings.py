"""What the units of a build paid for Torch's headers, and what they could save.

The measured figures are another machine's. How fast this one is follows from the units themselves:
no unit takes less than its headers do, so the one that takes the least in proportion gives the
pace. Shares and savings are thus at most what is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kbuild.advice.costs import CostClass, umbrella


class Compiled(Protocol):
    """What is asked of a unit."""

    @property
    def unit(self) -> str:
        """The source."""

    @property
    def language(self) -> str:
        """CMake's name of its language."""

    @property
    def archs(self) -> int:
        """Architectures that it was compiled for."""

    @property
    def cpu(self) -> float:
        """CPU seconds that it took; 0 when it came from the cache."""


U = TypeVar("U", bound=Compiled)


@dataclass(frozen=True)
class Change:
    """A change to one unit, and CPU seconds that it saves."""

    advice: str
    saves: float


@dataclass(frozen=True)
class Bill(Generic[U]):
    """What one unit paid for Torch's headers."""

    unit: U
    header: str
    """The one that brought in the others."""
    kind: CostClass
    share: float | None
    """Of the unit's CPU time, at most; None when it was not compiled or not measured."""
    changes: tuple[Change, ...]
    """Largest saving first; empty when nothing is known to help, or nothing was spent."""

    @property
    def saves(self) -> float:
        """CPU seconds of the best change."""
        return self.changes[0].saves if self.changes else 0.0


def bills(units: Sequence[U], headers: Mapping[U, Sequence[str]]) -> list[Bill[U]]:
    """Those of the units that read Torch's headers, the largest saving first.

    Args:
        units: the units of a build.
        headers: what each read of Torch, relative to its include folders.
    """
    found = [
        (unit, name, kind)
        for unit in units
        for name, kind in [umbrella(headers.get(unit, ())) or ("", None)]
        if kind is not None
    ]
    pace = _pace((unit, kind) for unit, _, kind in found)
    made = [_bill(unit, name, kind, pace) for unit, name, kind in found]
    return sorted(made, key=lambda bill: (-bill.saves, -bill.unit.cpu, bill.unit.unit))


def _pace(units: Iterable[tuple[Compiled, CostClass]]) -> float | None:
    """Seconds here for one of the measurement; None when no unit tells."""
    return min(
        (
            unit.cpu / seconds
            for unit, kind in units
            if unit.cpu and (seconds := kind.seconds(unit.language, unit.archs))
        ),
        default=None,
    )


def _bill(unit: U, name: str, kind: CostClass, pace: float | None) -> Bill[U]:
    now = kind.seconds(unit.language, unit.archs)
    if not unit.cpu or now is None or pace is None:
        return Bill(unit, name, kind, None, ())
    changes = [
        Change(change.advice, pace * (now - change.seconds))
        for change in kind.cheaper(unit.language, unit.archs)
    ]
    ordered = sorted(changes, key=lambda change: -change.saves)
    return Bill(unit, name, kind, min(1.0, pace * now / unit.cpu), tuple(ordered))
