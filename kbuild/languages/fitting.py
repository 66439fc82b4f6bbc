"""What became of units, and what is left for the launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbuild.errors import BuildError
from kbuild.languages.compiled import Compiled
from kbuild.languages.refusals import label
from kbuild.languages.unit import Unit

Note = Callable[[str], None]
PRUNED = "the kernel's `early_config_prune` drops it for these constants"
"""Why a candidate of the kernel's own has no image."""


@dataclass(frozen=True)
class Outcome:
    """A unit that was compiled."""

    unit: Unit
    compiled: Compiled | None
    """None when the image fits no device of its target."""
    reason: str = ""
    """Why it does not."""


Kind = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]


def kind_of(unit: Unit) -> Kind:
    """Which calls a unit is for: the dtypes of the tensors that are there, and the others."""
    return tuple(pair for pair in unit.dtypes if pair[0] not in unit.absent), unit.absent


def fitting(kernel: str, outcomes: Sequence[Outcome], note: Note) -> tuple[Compiled, ...]:
    """The images that there are; `note` is told of the others.

    Raises:
        BuildError: a launch has none for one of its targets and sets of dtypes.
    """
    found = [one.compiled for one in outcomes if one.compiled is not None]
    served = {_place(one.unit) for one in found}
    lost = [one for one in outcomes if one.compiled is None]
    for one in lost:
        if _place(one.unit) not in served:
            what = f"kernel.{kernel}: no image of {label(one.unit)} fits: {one.reason}"
            hint = "add a smaller candidate, or leave the arch out with `archs`"
            raise BuildError(what, hint=hint)
    for one in lost:
        note(f"kernel.{kernel}: {label(one.unit)}: left out, {one.reason}")
    return tuple(found)


def _place(unit: Unit) -> tuple[str, int, str, Kind]:
    return unit.op, unit.launch, str(unit.target), kind_of(unit)
