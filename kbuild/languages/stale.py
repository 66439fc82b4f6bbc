"""Rows of tuned tables that mean nothing any more, because the section was changed since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbuild.config.suggest import did_you_mean
from kbuild.errors import Problem
from kbuild.languages.spec.constants import NONE
from kbuild.languages.spec.values import Given, Launch, OpSpec
from kbuild.languages.tablefile import TableFile
from kbuild.languages.tables import Row

_HINT = "the row is left out; `kbuild tune` measures again, then remove it"


def stale(file: TableFile, ops: Sequence[OpSpec]) -> tuple[Problem, ...]:
    """A warning for each row that no launch or no candidate fits; such rows decide nothing.

    Args:
        file: the table.
        ops: the project's ops in DSLs; launches whose candidates are not known yet have none.
    """
    return tuple(_warnings(file, ops))


def _warnings(file: TableFile, ops: Sequence[OpSpec]) -> Iterator[Problem]:
    for index, row in enumerate(file.table.rows):
        found = _wrong(row, ops)
        if found is not None:
            line = file.lines[index] if index < len(file.lines) else 0
            words, hint = found
            yield Problem(file.path, line, f"rows[{index}]", words, hint or _HINT, "warning")


def _wrong(row: Row, ops: Sequence[OpSpec]) -> tuple[str, str] | None:
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
    return _candidate(row, op.launches[row.launch])


def _candidate(row: Row, launch: Launch) -> tuple[str, str] | None:
    is_unknown = launch.autotune and not any(one.constants for one in launch.candidates)
    if is_unknown or row.among(launch.candidates) is not None:
        return None
    return f"no candidate is {written(row.constants, row.options)}", ""


def written(constants: Given, options: Given) -> str:
    """A candidate as `build.toml` would write it."""
    pairs = ", ".join(f"{name} = {_toml(value)}" for name, value in (*constants, *options))
    return "{ " + pairs + " }" if pairs else "{}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value == NONE:
        return f'{{ string = "{NONE}" }}'
    return f'"{value}"' if value is None or isinstance(value, str) else str(value)
