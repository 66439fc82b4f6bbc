"""Which candidate a call runs, as launchers choose it in C++:

1. The rows are those of the tables for the device's own name; if these have none for the launch and
   the call's dtypes, those of every table of the device's arch.
2. The row with the call's key decides, else the nearest one: the smallest sum over the key of
   `|log2(1 + a) - log2(1 + b)|`, where negative values count as 0. Of equally near rows the first
   decides, in the order of the tables and of their rows (`merge` sorts both).
3. Its candidate runs if it still exists, its `when` holds, the call is aligned where the candidate
   requires it, and it fits the device. Otherwise the first candidate runs for which all of that
   is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kbuild.ops.steps import Candidate
from kbuild.ops.tuned_tables import TunedRow, TunedTable


@dataclass(frozen=True)
class OpCall:
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
    aligned: bool = True
    """Whether everything holds that the launch's aligned images assume."""


def choose_candidate(
    candidates: Sequence[Candidate],
    rows: Sequence[TunedRow],
    call: OpCall,
    fits: Callable[[int], bool] = lambda _: True,
) -> int | None:
    """The index of the candidate that a call runs; None when no candidate can.

    `fits` says whether an image of a candidate runs on the device.
    """

    def runs(index: int) -> bool:
        candidate = candidates[index]
        holds = candidate.when is None or bool(candidate.when.evaluate(call.values))
        return holds and (call.aligned or not candidate.aligned) and fits(index)

    row = nearest_row(rows, call.key)
    tuned = row.among(candidates) if row is not None else None
    if tuned is not None and runs(tuned):
        return tuned
    return next((index for index in range(len(candidates)) if runs(index)), None)


def rows_for_call(
    tables: Sequence[TunedTable], kernel: str, op: str, launch: int, call: OpCall
) -> tuple[TunedRow, ...]:
    """The rows that may decide about a call: of its own device, else of its arch."""
    own = [table for table in tables if table.device == call.device]
    alike = [table for table in tables if table.arch == call.arch]
    for chosen in (own, alike):
        rows = (row for table in chosen for row in table.of(kernel, op, launch))
        matching_rows = tuple(row for row in rows if _matches_call(row, call))
        if matching_rows:
            return matching_rows
    return ()


def nearest_row(rows: Sequence[TunedRow], key: Sequence[int]) -> TunedRow | None:
    """The row of that key, or else the nearest one; the first of several."""
    same = (row for row in rows if row.key == tuple(key))
    return next(same, None) or min(rows, key=lambda row: key_distance(row.key, key), default=None)


def key_distance(key: Sequence[int], other: Sequence[int]) -> float:
    """How far two keys are from each other: the sum of what they differ by in `log2(1 + x)`."""
    total = 0.0  # added from the left in double precision, as C++ does; `sum` may not
    for a, b in zip(key, other, strict=True):
        total += abs(_log2(a) - _log2(b))
    return total


def _log2(value: int) -> float:
    return math.log2(1.0 + float(max(value, 0)))


def _matches_call(row: TunedRow, call: OpCall) -> bool:
    dtypes = dict(row.dtypes)
    same = all(dtypes.get(tensor) == dtype for tensor, dtype in call.dtypes.items())
    return same and len(row.key) == len(call.key)
