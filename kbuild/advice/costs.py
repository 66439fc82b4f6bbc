"""What a unit's Torch headers cost to compile, and what would make it cheaper."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from kbuild.advice.measurements import HOST_LANGUAGES, Measured, measurements


@dataclass(frozen=True)
class Cheaper:
    """A change that makes a unit cheaper."""

    advice: str
    seconds: float
    """What the headers would cost then, on the machine of the measurement."""


@dataclass(frozen=True)
class CostClass:
    """Headers that cost about the same."""

    name: str
    headers: tuple[str, ...]
    marks: tuple[str, ...]
    """Patterns that tell the class from everything that a unit read."""
    measured: Measured | None
    stable: bool
    lean: tuple[str, Measured] | None
    """Advice on a leaner set of headers of the full ABI, and what it costs."""

    def seconds(self, language: str, archs: int = 1) -> float | None:
        """What one `#include` costs; None when it was not measured."""
        return self.measured.seconds(language, archs) if self.measured else None

    def cheaper(self, language: str, archs: int = 1) -> tuple[Cheaper, ...]:
        """Every change that is known to help, the least work first."""
        now = self.seconds(language, archs)
        if now is None:
            return ()
        known = [(text, cost) for text, cost in self._changes(language, archs) if cost is not None]
        return tuple(Cheaper(text, cost) for text, cost in known if cost < now)

    def _changes(self, language: str, archs: int) -> Iterator[tuple[str, float | None]]:
        facts = costs()
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
class Costs:
    """`header_costs.toml`."""

    how: str
    """How the seconds were measured."""
    stable: tuple[str, Measured]
    """Advice on the stable ABI, and what it costs."""
    device: tuple[str, Measured]
    """Advice for device units, and what one without Torch costs."""
    classes: tuple[CostClass, ...]
    """Dearest first."""


@dataclass(frozen=True)
class UnitCost:
    """One translation unit, with the dearest Torch header that it reads."""

    file: str
    language: str
    header: str | None
    """The dearest Torch header; None when there is none."""
    included_by: str | None
    """The project file that includes it."""
    kind: CostClass | None

    @property
    def seconds(self) -> float | None:
        """What the header costs, for one architecture; None when that was not measured."""
        return self.kind.seconds(self.language) if self.kind else 0.0

    @property
    def cheaper(self) -> tuple[Cheaper, ...]:
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


def unit_cost(file: str, language: str, headers: Mapping[str, str]) -> UnitCost:
    """The cost of one unit.

    Args:
        file: the unit.
        language: the CMake language that compiles it.
        headers: the headers that it reads from outside the project -> the file that includes it.
    """
    found = _dearest(headers, costs())
    if found is None:
        return UnitCost(file, language, None, None, None)
    header, kind = found
    return UnitCost(file, language, header, headers[header], kind)


def umbrella(headers: Collection[str]) -> tuple[str, CostClass] | None:
    """The header that brought in most of what a unit read of Torch, and its class.

    Args:
        headers: all that it read, relative to Torch's include folders.
    """
    there = set(headers)
    for kind in costs().classes:
        for pattern in kind.marks if kind.measured else ():
            fitting = [pattern] if pattern in there else []
            if not fitting and "*" in pattern:
                fitting = sorted(name for name in there if fnmatchcase(name, pattern))
            if fitting:
                return fitting[0], kind
    return None


@cache
def costs() -> Costs:
    """The costs that kbuild ships."""
    import tomli

    path = resources.files("kbuild.advice").joinpath("header_costs.toml")
    data = tomli.loads(path.read_text("utf-8"))
    return Costs(
        data["how"],
        _advice(data["stable"], "measured"),
        _advice(data["device"], "measured"),
        tuple(_class(row) for row in data["class"]),
    )


def _dearest(headers: Iterable[str], facts: Costs) -> tuple[str, CostClass] | None:
    for kind in facts.classes:
        for header in headers:
            if _class_of(header, facts) is kind:
                return header, kind
    return None


def _class_of(header: str, facts: Costs) -> CostClass | None:
    """The class that names the header, else the one with the longest pattern for it."""
    fitting = [
        (len(pattern), kind)
        for kind in facts.classes
        for pattern in kind.headers
        if fnmatchcase(header, pattern)
    ]
    return max(fitting, key=lambda found: found[0])[1] if fitting else None


def _advice(row: Mapping[str, Any], key: str) -> tuple[str, Measured]:
    return row["advice"], measurements()[row[key]]


def _class(row: Mapping[str, Any]) -> CostClass:
    return CostClass(
        name=row["name"],
        headers=tuple(row["headers"]),
        marks=tuple(row.get("marks", row["headers"])),
        measured=measurements()[row["measured"]] if "measured" in row else None,
        stable=row.get("stable", False),
        lean=_advice(row, "lean") if "lean" in row else None,
    )
