"""The outcome of each unit: an image, a pruned candidate, or a worker's rejection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.ops.image import UnitImage
from kbuild.ops.unit import KernelUnit
from kbuild.system.errors import BuildError

_MAX_REASONS = 5
"""Number of rejection reasons that an error shows in full."""


@dataclass(frozen=True)
class Rejection:
    """The reason why a worker compiled nothing, with the author's line where it is known."""

    message: str
    file: str = ""
    line: int = 0
    hint: str = ""
    excerpt: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Rejection:
        """Parse a rejection from a worker's JSON."""
        return cls(**{**data, "excerpt": tuple(data["excerpt"])})

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{place}{self.message}"


def rejection_error(
    kernel: str, refused: Sequence[tuple[KernelUnit, Rejection]], units: int
) -> BuildError:
    """One error for all rejected units, which names each reason once."""
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
    """Short description of a unit for messages: function, target, dtypes, constants."""
    constants = [f"{name}={value}" for name, value in (*unit.constants, *unit.options)]
    dtypes = dict.fromkeys(dtype for _, dtype in unit.dtypes)
    parts = [unit.functions[0], str(unit.target), *dtypes, *constants]
    return " ".join(parts)


NoteCallback = Callable[[str], None]
PRUNED = "the kernel's `early_config_prune` drops it for these constants"
"""Reason of a unit that the author's pruning function drops."""


@dataclass(frozen=True)
class UnitOutcome:
    """The result of compiling a unit."""

    unit: KernelUnit
    compiled: UnitImage | None
    """None when there is no image."""
    reason: str = ""
    """Reason why there is no image."""


CallKind = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]


def call_kind(unit: KernelUnit) -> CallKind:
    """The calls that a unit is for: dtypes of the given tensors, and names of the others."""
    return tuple(pair for pair in unit.dtypes if pair[0] not in unit.absent), unit.absent


def compiled_images(
    kernel: str, outcomes: Sequence[UnitOutcome], note: NoteCallback
) -> tuple[UnitImage, ...]:
    """Return the images; `note` gets a sentence for each unit without one.

    Raises:
        BuildError: a launch has no image for one of its targets and sets of dtypes.
    """
    images = [outcome.compiled for outcome in outcomes if outcome.compiled is not None]
    served = {_launch_of(image.unit) for image in images}
    without_image = [outcome for outcome in outcomes if outcome.compiled is None]
    for outcome in without_image:
        if _launch_of(outcome.unit) not in served:
            what = f"kernel.{kernel}: no image of {unit_label(outcome.unit)} fits: {outcome.reason}"
            hint = "add a smaller candidate, or leave the arch out with `archs`"
            raise BuildError(what, hint=hint)
    for outcome in without_image:
        note(f"kernel.{kernel}: {unit_label(outcome.unit)}: left out, {outcome.reason}")
    return tuple(images)


def _launch_of(unit: KernelUnit) -> tuple[str, int, str, CallKind]:
    return unit.op, unit.launch, str(unit.target), call_kind(unit)
