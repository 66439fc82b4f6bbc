"""Which candidate a call runs: the rule that launchers follow in C++, for tests and for tuning.

1. Rows are looked at of the tables for the device's own name; if these have none for the launch
   and the call's dtypes, those of every table of the device's arch.
2. The row with the call's key decides, else the nearest one: the smallest sum over the key of
   `|log2(1 + a) - log2(1 + b)|`, where negative values count as 0. Of equally near rows the first
   decides, in the order of the tables and of their rows (`tables.merge` sorts both).
3. Its candidate runs if it is still there, its `when` holds and it fits the device. Otherwise the
   first candidate runs whose `when` holds and which fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kbuild.languages.spec.values import Candidate
from kbuild.languages.tables import Row, Table


@dataclass(frozen=True)
class Call:
    """What is known of one call of an op when a launch is chosen for it."""

    device: str
    """The driver's name of the GPU."""
    arch: str
    """As tables write it: `sm_90`, `gfx942`."""
    dtypes: Mapping[str, str]
    """Tensor -> dtype, of the tensors that are given."""
    key: tuple[int, ...]
    values: Mapping[str, int] = field(default_factory=dict)
    """Names and questions -> numbers: whatever a `when` may ask."""


def choose(
    candidates: Sequence[Candidate],
    rows: Sequence[Row],
    call: Call,
    fits: Callable[[int], bool] = lambda _: True,
) -> int | None:
    """The index of the candidate that a call runs; None when no candidate can.

    Args:
        candidates: those of the launch, in the section's order.
        rows: what `rows_for` found for the launch and the call.
        call: the call.
        fits: whether an image of a candidate runs on the device: one for its arch and dtypes, whose
            shared memory the device has.

    Raises:
        EvaluationError: a `when` that has to be asked has no value.
    """

    def runs(index: int) -> bool:
        when = candidates[index].when
        return (when is None or bool(when.evaluate(call.values))) and fits(index)

    row = nearest(rows, call.key)
    tuned = row.among(candidates) if row is not None else None
    if tuned is not None and runs(tuned):
        return tuned
    return next((index for index in range(len(candidates)) if runs(index)), None)


def rows_for(
    tables: Sequence[Table], kernel: str, op: str, launch: int, call: Call
) -> tuple[Row, ...]:
    """The rows that may decide about a call: of its own device, else of its arch."""
    own = [table for table in tables if table.device == call.device]
    alike = [table for table in tables if table.arch == call.arch]
    for chosen in (own, alike):
        rows = (row for table in chosen for row in table.of(kernel, op, launch))
        found = tuple(row for row in rows if _is_for(row, call))
        if found:
            return found
    return ()


def nearest(rows: Sequence[Row], key: Sequence[int]) -> Row | None:
    """The row of that key, or else the nearest one; the first of several."""
    same = (row for row in rows if row.key == tuple(key))
    return next(same, None) or min(rows, key=lambda row: distance(row.key, key), default=None)


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """How far two keys are from each other: the sum of what they differ by in `log2(1 + x)`."""
    total = 0.0  # added from the left in double precision, as C++ does; `sum` may not
    for a, b in zip(one, other, strict=True):
        total += abs(_log2(a) - _log2(b))
    return total


def _log2(value: int) -> float:
    return math.log2(1.0 + float(max(value, 0)))


def _is_for(row: Row, call: Call) -> bool:
    dtypes = dict(row.dtypes)
    same = all(dtypes.get(tensor) == dtype for tensor, dtype in call.dtypes.items())
    return same and len(row.key) == len(call.key)
