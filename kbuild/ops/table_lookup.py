"""Looks up tuned rows: which candidate a call runs.

And which rows no launch or candidate matches.

Launchers implement the same rule in C++:

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbuild.config.issue import did_you_mean
from kbuild.errors import Problem
from kbuild.ops.constants import NONE
from kbuild.ops.model import Candidate, ConstantPairs, Launch, OpSpec
from kbuild.ops.tuned_tables import TunedRow, TunedTable, TunedTableFile


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


_STALE_HINT = "the row is ignored; run `kbuild tune` again, then remove it"


def stale_rows(file: TunedTableFile, ops: Sequence[OpSpec]) -> tuple[Problem, ...]:
    """A warning for each row that no launch or no candidate fits; such rows decide nothing.

    Args:
        file: the table.
        ops: the project's ops in DSLs; launches whose candidates are not known yet have none.
    """
    return tuple(_stale_warnings(file, ops))


def _stale_warnings(file: TunedTableFile, ops: Sequence[OpSpec]) -> Iterator[Problem]:
    for index, row in enumerate(file.table.rows):
        problem = _stale_reason(row, ops)
        if problem is not None:
            line = file.lines[index] if index < len(file.lines) else 0
            message, hint = problem
            yield Problem(
                file.path, line, f"rows[{index}]", message, hint or _STALE_HINT, "warning"
            )


def _stale_reason(row: TunedRow, ops: Sequence[OpSpec]) -> tuple[str, str] | None:
    kernels = {op.kernel for op in ops}
    if row.kernel not in kernels:
        return f"there is no kernel `{row.kernel}`", did_you_mean(row.kernel, kernels)
    names = {op.name: op for op in ops if op.kernel == row.kernel}
    op = names.get(row.op)
    if op is None:
        return f"`{row.kernel}` has no op `{row.op}`", did_you_mean(row.op, names)
    if row.launch >= len(op.launches):
        return f"`{row.op}` has no launch {row.launch}", ""
    own_key = not op.key and any(launch.autotune for launch in op.launches)  # the kernel's
    if len(row.key) != len(op.key) and not own_key:
        return f"its key has {len(row.key)} values, that of `{row.op}` {len(op.key)}", ""
    if dict(row.dtypes) not in [dict(dtypes) for dtypes in op.dtype_sets()]:
        return f"`{row.op}` is not compiled for these dtypes", ""
    return _candidate_problem(row, op.launches[row.launch])


def _candidate_problem(row: TunedRow, launch: Launch) -> tuple[str, str] | None:
    is_unknown = launch.autotune and not any(candidate.constants for candidate in launch.candidates)
    if is_unknown or row.among(launch.candidates) is not None:
        return None
    return f"no candidate is {candidate_toml(row.constants, row.options)}", ""


def candidate_toml(constants: ConstantPairs, options: ConstantPairs) -> str:
    """A candidate as `build.toml` would write it."""
    pairs = ", ".join(f"{name} = {_toml_value(value)}" for name, value in (*constants, *options))
    return "{ " + pairs + " }" if pairs else "{}"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value == NONE:
        return f'{{ string = "{NONE}" }}'
    return f'"{value}"' if value is None or isinstance(value, str) else str(value)
