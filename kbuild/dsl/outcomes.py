"""The outcome of each unit: an image, a pruned candidate, or a worker's rejection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.ops.image import UnitImage
from kbuild.ops.unit import KernelUnit
from kbuild.system.errors import BuildError

_MAX_REASONS = 5
"""Refusals that are shown whole."""


@dataclass(frozen=True)
class Rejection:
    """Why something was not made."""

    message: str
    file: str = ""
    line: int = 0
    hint: str = ""
    excerpt: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Rejection:
        """As a worker writes it."""
        return cls(**{**data, "excerpt": tuple(data["excerpt"])})

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{place}{self.message}"


def rejection_error(
    kernel: str, refused: Sequence[tuple[KernelUnit, Rejection]], units: int
) -> BuildError:
    """One error for all units that could not be compiled; each reason once."""
    reasons: dict[Rejection, list[KernelUnit]] = {}
    for unit, refusal in refused:
        reasons.setdefault(refusal, []).append(unit)
    first = next(iter(reasons))
    excerpt: list[str] = []
    for refusal, affected in list(reasons.items())[:_MAX_REASONS]:
        more = f" and {len(affected) - 1} more" if len(affected) > 1 else ""
        excerpt += [*(() if refusal is first else (str(refusal),)), *refusal.excerpt]
        excerpt.append(f"({unit_label(affected[0])}{more})")
    if len(reasons) > _MAX_REASONS:
        excerpt.append(f"... and {len(reasons) - _MAX_REASONS} other reasons")
    count = f" ({len(refused)} of {units} units)" if units > 1 else ""
    return BuildError(f"kernel.{kernel}: {first}{count}", excerpt=excerpt, hint=first.hint)


def unit_label(unit: KernelUnit) -> str:
    """A unit in a few words."""
    constants = [f"{name}={value}" for name, value in (*unit.constants, *unit.options)]
    dtypes = dict.fromkeys(dtype for _, dtype in unit.dtypes)
    parts = [unit.functions[0], str(unit.target), *dtypes, *constants]
    return " ".join(parts)


NoteCallback = Callable[[str], None]
PRUNED = "the kernel's `early_config_prune` drops it for these constants"
"""Why a candidate of the kernel's own has no image."""


@dataclass(frozen=True)
class UnitOutcome:
    """A unit that was compiled."""

    unit: KernelUnit
    compiled: UnitImage | None
    """None when the image fits no device of its target."""
    reason: str = ""
    """Why it does not."""


CallKind = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]


def call_kind(unit: KernelUnit) -> CallKind:
    """Which calls a unit is for: the dtypes of the tensors that are there, and the others."""
    return tuple(pair for pair in unit.dtypes if pair[0] not in unit.absent), unit.absent


def compiled_images(
    kernel: str, outcomes: Sequence[UnitOutcome], note: NoteCallback
) -> tuple[UnitImage, ...]:
    """The images that there are; `note` gets the others.

    Raises:
        BuildError: a launch has none for one of its targets and sets of dtypes.
    """
    images = [outcome.compiled for outcome in outcomes if outcome.compiled is not None]
    served = {_launch_of(image.unit) for image in images}
    lost = [outcome for outcome in outcomes if outcome.compiled is None]
    for outcome in lost:
        if _launch_of(outcome.unit) not in served:
            what = f"kernel.{kernel}: no image of {unit_label(outcome.unit)} fits: {outcome.reason}"
            hint = "add a smaller candidate, or leave the arch out with `archs`"
            raise BuildError(what, hint=hint)
    for outcome in lost:
        note(f"kernel.{kernel}: {unit_label(outcome.unit)}: left out, {outcome.reason}")
    return tuple(images)


def _launch_of(unit: KernelUnit) -> tuple[str, int, str, CallKind]:
    return unit.op, unit.launch, str(unit.target), call_kind(unit)
