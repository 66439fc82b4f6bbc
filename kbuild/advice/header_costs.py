"""What including Torch's headers costs.

Measured figures, estimates for units, and what a finished build could have saved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, Generic, Protocol, TypeVar

HOST_LANGUAGES = ("CXX", "OBJC", "OBJCXX")


@dataclass(frozen=True)
class HeaderMeasurement:
    """One header's figures, CPU seconds on the machine of the measurement."""

    header: str
    host: float
    base: float | None
    """What the device compiler takes once; None when it was not measured."""
    arch: float | None
    """What it takes for each architecture."""

    def seconds(self, language: str, archs: int) -> float | None:
        """Of a unit in a CMake language, compiled for so many architectures."""
        if language in HOST_LANGUAGES:
            return self.host
        if self.base is None or self.arch is None:
            return None
        return self.base + self.arch * archs


@cache
def measurements() -> Mapping[str, HeaderMeasurement]:
    """Header -> its figures; the empty name is a file that includes nothing."""
    return {row["header"]: _measurement(row) for row in _measurement_data()["measured"]}


@cache
def compiler_versions() -> str:
    """Versions of the compilers and of Torch."""
    return str(_measurement_data()["with"])


@cache
def _measurement_data() -> Mapping[str, Any]:
    import tomli

    path = resources.files("kbuild.advice").joinpath("header_measurements.toml")
    return tomli.loads(path.read_text("utf-8"))


def _measurement(row: Mapping[str, Any]) -> HeaderMeasurement:
    device = row.get("device", {})
    return HeaderMeasurement(
        row["header"], row["host"]["seconds"], device.get("base"), device.get("arch")
    )


@dataclass(frozen=True)
class CostReduction:
    """A change that makes a unit cheaper."""

    advice: str
    seconds: float
    """What the headers would cost then, on the machine of the measurement."""


@dataclass(frozen=True)
class HeaderCostClass:
    """Headers that cost about the same."""

    name: str
    headers: tuple[str, ...]
    marks: tuple[str, ...]
    """Patterns that tell the class from everything that a unit read."""
    measured: HeaderMeasurement | None
    stable: bool
    lean: tuple[str, HeaderMeasurement] | None
    """Advice on a leaner set of headers of the full ABI, and what it costs."""

    def seconds(self, language: str, archs: int = 1) -> float | None:
        """What one `#include` costs; None when it was not measured."""
        return self.measured.seconds(language, archs) if self.measured else None

    def cheaper(self, language: str, archs: int = 1) -> tuple[CostReduction, ...]:
        """Every change that is known to help, the least work first."""
        now = self.seconds(language, archs)
        if now is None:
            return ()
        known = [(text, cost) for text, cost in self._changes(language, archs) if cost is not None]
        return tuple(CostReduction(text, cost) for text, cost in known if cost < now)

    def _changes(self, language: str, archs: int) -> Iterator[tuple[str, float | None]]:
        facts = header_costs()
        if self.stable:
            return
        if self.lean:
            yield self.lean[0], self.lean[1].seconds(language, archs)
        if language not in HOST_LANGUAGES:
            text, measured = facts.device
            bare = measured.seconds(language, archs)
            kept = self.lean[1] if self.lean else self.measured
            # What used Torch still has to be compiled, by the host's compiler.
            yield text, bare + kept.host if bare is not None and kept else None
        text, measured = facts.stable
        yield text, measured.seconds(language, archs)


@dataclass(frozen=True)
class HeaderCosts:
    """`header_costs.toml`."""

    how: str
    """How the seconds were measured."""
    stable: tuple[str, HeaderMeasurement]
    """Advice on the stable ABI, and what it costs."""
    device: tuple[str, HeaderMeasurement]
    """Advice for device units, and what one without Torch costs."""
    classes: tuple[HeaderCostClass, ...]
    """Dearest first."""


@dataclass(frozen=True)
class EstimatedUnitCost:
    """One translation unit, with the most expensive Torch header that it reads."""

    file: str
    language: str
    header: str | None
    """The most expensive Torch header; None when there is none."""
    included_by: str | None
    """The project file that includes it."""
    kind: HeaderCostClass | None

    @property
    def seconds(self) -> float | None:
        """What the header costs, for one architecture; None when that was not measured."""
        return self.kind.seconds(self.language) if self.kind else 0.0

    @property
    def cheaper(self) -> tuple[CostReduction, ...]:
        """What would make the unit cheaper, the least work first."""
        return self.kind.cheaper(self.language) if self.kind else ()

    @property
    def saves(self) -> float:
        """Seconds that the best change saves for one architecture."""
        now = self.seconds
        return max((now - change.seconds for change in self.cheaper), default=0.0) if now else 0.0

    def to_json(self) -> dict[str, object]:
        """The unit as a JSON object."""
        return {
            "file": self.file,
            "language": self.language,
            "header": self.header,
            "included-by": self.included_by,
            "class": self.kind.name if self.kind else "none",
            "seconds": self.seconds,
            "cheaper": [
                {"advice": change.advice, "seconds": round(change.seconds, 2)}
                for change in self.cheaper
            ],
        }


def estimate_unit_cost(file: str, language: str, headers: Mapping[str, str]) -> EstimatedUnitCost:
    """The cost of one unit.

    Args:
        file: the unit.
        language: the CMake language that compiles it.
        headers: the headers that it reads from outside the project -> the file that includes it.
    """
    most_expensive = _most_expensive(headers, header_costs())
    if most_expensive is None:
        return EstimatedUnitCost(file, language, None, None, None)
    header, kind = most_expensive
    return EstimatedUnitCost(file, language, header, headers[header], kind)


def umbrella_header(headers: Collection[str]) -> tuple[str, HeaderCostClass] | None:
    """The header that brought in most of what a unit read of Torch, and its class.

    Args:
        headers: all that it read, relative to Torch's include folders.
    """
    there = set(headers)
    for kind in header_costs().classes:
        for pattern in kind.marks if kind.measured else ():
            fitting = [pattern] if pattern in there else []
            if not fitting and "*" in pattern:
                fitting = sorted(name for name in there if fnmatchcase(name, pattern))
            if fitting:
                return fitting[0], kind
    return None


@cache
def header_costs() -> HeaderCosts:
    """The costs that kbuild ships."""
    import tomli

    path = resources.files("kbuild.advice").joinpath("header_costs.toml")
    data = tomli.loads(path.read_text("utf-8"))
    return HeaderCosts(
        data["how"],
        _advice_row(data["stable"], "measured"),
        _advice_row(data["device"], "measured"),
        tuple(_cost_class(row) for row in data["class"]),
    )


def _most_expensive(
    headers: Iterable[str], facts: HeaderCosts
) -> tuple[str, HeaderCostClass] | None:
    for kind in facts.classes:
        for header in headers:
            # The class that names the header, else the one with the longest pattern for it.
            fitting = [
                (len(pattern), kind)
                for kind in facts.classes
                for pattern in kind.headers
                if fnmatchcase(header, pattern)
            ]
            class_of = max(fitting, key=lambda match: match[0])[1] if fitting else None
            if class_of is kind:
                return header, kind
    return None


def _advice_row(row: Mapping[str, Any], key: str) -> tuple[str, HeaderMeasurement]:
    return row["advice"], measurements()[row[key]]


def _cost_class(row: Mapping[str, Any]) -> HeaderCostClass:
    return HeaderCostClass(
        name=row["name"],
        headers=tuple(row["headers"]),
        marks=tuple(row.get("marks", row["headers"])),
        measured=measurements()[row["measured"]] if "measured" in row else None,
        stable=row.get("stable", False),
        lean=_advice_row(row, "lean") if "lean" in row else None,
    )


class MeasuredUnit(Protocol):
    """The request for the cost of a unit."""

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

    @property
    def reads_less(self) -> bool:
        """True when headers were precompiled or left out: its time then tells nothing of them."""


UnitT = TypeVar("UnitT", bound=MeasuredUnit)


@dataclass(frozen=True, slots=True)
class HeaderSaving:
    """A change to one unit, and CPU seconds that it saves."""

    advice: str
    saves: float


@dataclass(frozen=True, slots=True)
class ObservedHeaderCost(Generic[UnitT]):
    """What one unit paid for Torch's headers."""

    unit: UnitT
    header: str
    """The one that brought in the others."""
    kind: HeaderCostClass
    share: float | None
    """Of the unit's CPU time, at most; None when it was not compiled or not measured."""
    changes: tuple[HeaderSaving, ...]
    """Largest saving first; empty when nothing is known to help, or nothing was spent."""

    @property
    def saves(self) -> float:
        """CPU seconds of the best change."""
        return self.changes[0].saves if self.changes else 0.0


def observed_header_costs(
    units: Iterable[tuple[UnitT, Sequence[str]]],
) -> list[ObservedHeaderCost[UnitT]]:
    """Those of the units that read Torch's headers, the largest saving first.

    Args:
        units: the units of a build, each with what it read of Torch, relative to its include
            folders.
    """
    readers = [
        (unit, name, kind)
        for unit, headers in units
        for name, kind in [umbrella_header(headers) or ("", None)]
        if kind is not None
    ]
    pace = _machine_speed((unit, kind) for unit, _, kind in readers)
    costs = [_observed_cost(unit, name, kind, pace) for unit, name, kind in readers]
    return sorted(costs, key=lambda bill: (-bill.saves, -bill.unit.cpu, bill.unit.unit))


def _machine_speed(units: Iterable[tuple[MeasuredUnit, HeaderCostClass]]) -> float | None:
    """Seconds here for one of the measurement; None when no unit tells."""
    return min(
        (
            unit.cpu / seconds
            for unit, kind in units
            if unit.cpu
            and not unit.reads_less
            and (seconds := kind.seconds(unit.language, unit.archs))
        ),
        default=None,
    )


def _observed_cost(
    unit: UnitT, name: str, kind: HeaderCostClass, pace: float | None
) -> ObservedHeaderCost[UnitT]:
    now = kind.seconds(unit.language, unit.archs)
    if not unit.cpu or unit.reads_less or now is None or pace is None:
        return ObservedHeaderCost(unit, name, kind, None, ())
    changes = [
        HeaderSaving(change.advice, pace * (now - change.seconds))
        for change in kind.cheaper(unit.language, unit.archs)
    ]
    ordered = sorted(changes, key=lambda change: -change.saves)
    return ObservedHeaderCost(unit, name, kind, min(1.0, pace * now / unit.cpu), tuple(ordered))
