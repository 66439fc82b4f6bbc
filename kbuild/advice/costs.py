"""What a unit's Torch headers cost to compile, and what would make it cheaper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

HOST_LANGUAGES = ("CXX", "OBJC", "OBJCXX")


@dataclass(frozen=True)
class CostClass:
    """Headers that cost about the same."""

    name: str
    headers: tuple[str, ...]
    seconds: float | None
    """User seconds of one `#include`; None when it was not measured."""
    stable: bool
    cheaper: str
    """What a host unit can do about it; empty when there is nothing."""


@dataclass(frozen=True)
class Costs:
    """`header_costs.toml`."""

    how: str
    """How the seconds were measured."""
    device: str
    """What a device unit can do about headers of the full ABI."""
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
    cheaper: str

    def to_json(self) -> dict[str, object]:
        """The unit as a JSON object."""
        return {
            "file": self.file,
            "language": self.language,
            "header": self.header,
            "included-by": self.included_by,
            "class": self.kind.name if self.kind else "none",
            "seconds": self.kind.seconds if self.kind else 0.0,
            "cheaper": self.cheaper or None,
        }


def unit_cost(file: str, language: str, headers: Mapping[str, str]) -> UnitCost:
    """The cost of one unit.

    Args:
        file: the unit.
        language: the CMake language that compiles it.
        headers: the headers that it reads from outside the project -> the file that includes it.
    """
    facts = costs()
    found = _dearest(headers, facts)
    if found is None:
        return UnitCost(file, language, None, None, None, "")
    header, kind = found
    on_device = language not in HOST_LANGUAGES and not kind.stable
    cheaper = facts.device if on_device else kind.cheaper
    return UnitCost(file, language, header, headers[header], kind, cheaper)


@cache
def costs() -> Costs:
    """The costs that kbuild ships."""
    import tomli

    path = resources.files("kbuild.advice").joinpath("header_costs.toml")
    data = tomli.loads(path.read_text("utf-8"))
    return Costs(data["how"], data["device"], tuple(_class(row) for row in data["class"]))


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


def _class(row: Mapping[str, Any]) -> CostClass:
    return CostClass(
        name=row["name"],
        headers=tuple(row["headers"]),
        seconds=row.get("seconds"),
        stable=row.get("stable", False),
        cheaper=row.get("cheaper", ""),
    )
