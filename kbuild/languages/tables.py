"""Tuned tables as values: which candidate was the fastest, measured on one GPU model."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.languages.spec.values import Pairs


@dataclass(frozen=True)
class Row:
    """The fastest candidate of one launch for one set of dtypes and one key."""

    kernel: str
    op: str
    launch: int
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype, in the op's order."""
    key: tuple[int, ...]
    """Values of the op's `key` expressions, in their order."""
    constants: Pairs
    """The candidate's constants; together with `options` they name it."""
    options: Pairs
    microseconds: float
    default_microseconds: float
    """What the default candidate took for the same call; the candidate's own time if it is it."""


@dataclass(frozen=True)
class Table:
    """What was measured on one GPU model."""

    device: str
    """The driver's name for it: `NVIDIA H200`."""
    arch: str
    """`sm_90` (without a feature letter), `gfx942`."""
    rows: tuple[Row, ...] = ()

    def of(self, kernel: str, op: str, launch: int) -> tuple[Row, ...]:
        """The rows of one launch."""
        wanted = (kernel, op, launch)
        return tuple(row for row in self.rows if (row.kernel, row.op, row.launch) == wanted)
