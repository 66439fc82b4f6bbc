"""The types of all C++ units of one variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.backends.static import TypeCheck
from kbuild.plan import VariantPlan
from kbuild.static.command import LANGUAGE, Folders, arguments
from kbuild.static.diagnostics import findings
from kbuild.static.unit import Answer
from kbuild.static.verdict import Verdict


@dataclass(frozen=True)
class UnitCheck:
    """One unit that is to be checked."""

    variant: str
    source: str
    """Relative to the project."""
    argv: tuple[str, ...]
    """Compiler and arguments, without source and outputs."""


def units(
    plan: VariantPlan, check: TypeCheck, folders: Folders, compiler: Path
) -> Iterator[UnitCheck]:
    """The variant's C++ units, binding first; what other languages compile is left out."""
    for part in plan.components:
        argv = (str(compiler), *arguments(plan, part, check, folders))
        for source in part.compiled:
            if source.language == LANGUAGE:
                yield UnitCheck(plan.variant, source.path, argv)


def judge(
    plan: VariantPlan,
    answers: Sequence[tuple[UnitCheck, Answer]],
    versions: str,
    root: Path,
    unproved: str,
) -> Verdict:
    """The verdict on a variant from the answers for all of its units.

    `versions` names compiler and headers, for people.
    """
    found = {
        finding: None
        for unit, given in answers
        if not given.is_clean
        for finding in findings(given.said, unit.source, root)
    }
    return Verdict(
        plan.variant,
        f"{_count(len(answers))} type-checked with {versions}",
        unproved,
        tuple(found),
        units=len(answers),
        remembered=sum(1 for _, given in answers if given.is_remembered),
    )


def _count(number: int) -> str:
    return f"{number} unit{'s' if number != 1 else ''}"
