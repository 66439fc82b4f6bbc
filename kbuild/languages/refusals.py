"""What workers refuse, in words for the author."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.errors import BuildError
from kbuild.languages.unit import Unit

_MOST = 5
"""Refusals that are shown whole."""


@dataclass(frozen=True)
class Refusal:
    """Why something was not made."""

    message: str
    file: str = ""
    line: int = 0
    hint: str = ""
    excerpt: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Refusal:
        """As a worker writes it."""
        return cls(
            data["message"], data["file"], data["line"], data["hint"], tuple(data["excerpt"])
        )

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{place}{self.message}"


def of_units(kernel: str, refused: Sequence[tuple[Unit, Refusal]], units: int) -> BuildError:
    """One error for all units that could not be compiled; each reason once."""
    reasons: dict[Refusal, list[Unit]] = {}
    for unit, refusal in refused:
        reasons.setdefault(refusal, []).append(unit)
    first = next(iter(reasons))
    excerpt: list[str] = []
    for refusal, affected in list(reasons.items())[:_MOST]:
        more = f" and {len(affected) - 1} more" if len(affected) > 1 else ""
        excerpt += [*(() if refusal is first else (str(refusal),)), *refusal.excerpt]
        excerpt.append(f"({label(affected[0])}{more})")
    if len(reasons) > _MOST:
        excerpt.append(f"... and {len(reasons) - _MOST} other reasons")
    count = f" ({len(refused)} of {units} units)" if units > 1 else ""
    return BuildError(f"kernel.{kernel}: {first}{count}", excerpt=excerpt, hint=first.hint)


def label(unit: Unit) -> str:
    """A unit in a few words."""
    constants = [f"{name}={value}" for name, value in (*unit.constants, *unit.options)]
    dtypes = dict.fromkeys(dtype for _, dtype in unit.dtypes)
    parts = [unit.functions[0], str(unit.target), *dtypes, *constants]
    return " ".join(parts)
