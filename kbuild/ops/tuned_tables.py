"""Tuned tables: the fastest candidate per call, measured on one GPU model.

In a project they are `tuned/<device>.json`, one row per line; rows that no launch or candidate
matches any more are reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

from kbuild.ops.constants import NONE
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate, ConstantPairs, find_candidate
from kbuild.project.config.document import TABLES_FOLDER
from kbuild.project.config.issue import did_you_mean
from kbuild.system.errors import ConfigError, DamagedFileError, Problem, Severity
from kbuild.system.files import replace_atomically
from kbuild.system.sourcetree import SourceTree
from kbuild.system.untrusted import parse_json, reason_of

RowKey = tuple[str, str, int, tuple[tuple[str, str], ...], tuple[int, ...]]


@dataclass(frozen=True)
class TunedRow:
    """The fastest candidate of one launch for one set of dtypes and one key."""

    kernel: str
    op: str
    launch: int
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype, in the op's order."""
    key: tuple[int, ...]
    """Values of the op's `key` expressions, in their order."""
    constants: ConstantPairs
    """The candidate's constants; together with `options` they name it."""
    options: ConstantPairs
    microseconds: float
    default_microseconds: float
    """Time of the default candidate for the same call; of the row's own if it is the default."""
    spread: float = 0.0
    """Difference between the times of several processes, relative to the time; 0 if unknown."""

    @property
    def place(self) -> RowKey:
        """Identity of the row, which is unique in a table."""
        return self.kernel, self.op, self.launch, tuple(sorted(self.dtypes)), self.key

    def names(self, candidate: Candidate) -> bool:
        """True if the row's constants and options are those of the candidate."""
        return candidate.consists_of(self.constants, self.options)

    def among(self, candidates: Sequence[Candidate]) -> int | None:
        """Index of the row's candidate; None if it does not exist any more."""
        return find_candidate(candidates, self.constants, self.options)


@dataclass(frozen=True)
class TunedTable:
    """The measurements on one GPU model."""

    device: str
    """The driver's name of the model, such as `NVIDIA H200`."""
    arch: str
    """`sm_90` (without a feature letter), `gfx942`."""
    rows: tuple[TunedRow, ...] = ()
    driver: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    """Program -> version, for the record: `kbuild`, `torch`, the DSL."""

    def of(self, kernel: str, op: str, launch: int) -> tuple[TunedRow, ...]:
        """The rows of one launch."""
        wanted = (kernel, op, launch)
        return tuple(row for row in self.rows if (row.kernel, row.op, row.launch) == wanted)

    def merged(self, newer: TunedTable) -> TunedTable:
        """Return this table with the rows of a newer one, which win over rows of the same place.

        Driver and versions come from the newer table, if it has them.

        Raises:
            ValueError: the tables are for different devices.
        """
        if (newer.device, newer.arch) != (self.device, self.arch):
            raise ValueError(f"{newer.device} ({newer.arch}) is not {self.device} ({self.arch})")
        versions = {**dict(self.versions), **dict(newer.versions)}
        return replace(
            self,
            rows=sorted_rows((*self.rows, *newer.rows)),
            driver=newer.driver or self.driver,
            versions=tuple(sorted(versions.items())),
        )


def merge_tables(tables: Iterable[TunedTable]) -> tuple[TunedTable, ...]:
    """Merge tables into one for each device, by name; later tables win."""
    tables_by_device: dict[tuple[str, str], TunedTable] = {}
    for table in tables:
        known = tables_by_device.setdefault((table.device, table.arch), replace(table, rows=()))
        tables_by_device[table.device, table.arch] = known.merged(table)
    return tuple(tables_by_device[key] for key in sorted(tables_by_device))


def sorted_rows(rows: Iterable[TunedRow]) -> tuple[TunedRow, ...]:
    """Sort rows by identity; of several with the same one, the last is kept."""
    last: Mapping[RowKey, TunedRow] = {row.place: row for row in rows}
    return tuple(last[place] for place in sorted(last))


TABLE_FORMAT = 1
CPU_DEVICE = "cpu"
"""Arch of the processor, for which only tests tune."""
_KIND = "a table of `kbuild tune`"
_HINT_RETUNE = "correct it, or remove it and run `kbuild tune` again"
_ARCH = re.compile(r"sm_[1-9]\d{1,2}|gfx[1-9]\d?[0-9a-f]{2}")
_MAX_MICROSECONDS = 1e15
_VALUES = (bool, int, float, str, NoneType)


@dataclass(frozen=True)
class TunedTableFile:
    """A table, and the lines of its rows in the file."""

    path: str
    """Path for messages."""
    table: TunedTable
    lines: tuple[int, ...] = ()
    """1-based line of each row."""


def table_path(device: str) -> str:
    """Path of a device's table relative to the project, such as `tuned/nvidia-h200.json`."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return f"{TABLES_FOLDER}/{slug or 'device'}.json"


def read_tables(root: Path, paths: Sequence[str]) -> tuple[TunedTable, ...]:
    """Read the tables of a project and merge them into one for each device, by name.

    Raises:
        ConfigError: with everything that is wrong with the files.
    """
    return merge_tables(file.table for file in read_table_files(root, paths))


def read_table_files(root: Path, paths: Sequence[str]) -> tuple[TunedTableFile, ...]:
    """Read the table of each file.

    Raises:
        ConfigError: with everything that is wrong with them.
    """
    problems: list[Problem] = []
    files = []
    for path in paths:
        try:
            files.append(parse_table(SourceTree(root).read_bytes(path), path))
        except (OSError, DamagedFileError) as error:
            problems.append(
                Problem(path, 0, "", f"cannot be read: {reason_of(error)}", _HINT_RETUNE)
            )
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return tuple(files)


def parse_table(text: str | bytes, path: str) -> TunedTableFile:
    """Parse a table; `path` is for messages.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    try:
        data = parse_json(text, path, _KIND)
    except DamagedFileError as error:
        line, message = getattr(error.__cause__, "lineno", 0), f"cannot be read: {reason_of(error)}"
        raise ConfigError([Problem(path, line, "", message, _HINT_RETUNE)]) from error
    problems = [
        Problem(path, 0, key, message, _HINT_RETUNE) for key, message in _head_problems(data)
    ]
    if problems:
        raise ConfigError(problems)
    lines = tuple(_lines(text if isinstance(text, str) else text.decode()))
    rows = []
    for index, row in enumerate(data["rows"]):
        try:
            rows.append(row_from_json(row))
        except ValueError as error:
            problems.append(_row_problem(path, lines, index, str(error), _HINT_RETUNE))
    if problems:
        raise ConfigError(problems)
    driver, texts = str(data.get("driver", "")), data.get("versions", {}).items()
    versions = tuple((str(name), str(version)) for name, version in texts)
    table = TunedTable(data["device"], data["arch"], tuple(rows), driver, versions)
    return TunedTableFile(path, table, lines)


def _row_problem(  # noqa: PLR0917
    path: str,
    lines: Sequence[int],
    index: int,
    message: str,
    hint: str,
    severity: Severity = "error",
) -> Problem:
    line = lines[index] if index < len(lines) else 0
    return Problem(path, line, f"rows[{index}]", message, hint, severity)


def write_table(root: Path, table: TunedTable) -> str:
    """Merge a table into the project's file for the device; return the file's relative path.

    Other rows of the file are kept. Nothing is written if nothing changes.

    Raises:
        ConfigError: the existing file cannot be read.
    """
    path = table_path(table.device)
    target = root / path
    if target.is_file():
        existing = read_table_files(root, (path,))[0].table
        if (existing.device, existing.arch) != (table.device, table.arch):
            message = (
                f"is for {existing.device} ({existing.arch}), not for {table.device} ({table.arch})"
            )
            raise ConfigError([Problem(path, 0, "device", message, "move the file away")])
        table = existing.merged(table)
    data = table_text(table).encode()
    if not target.is_file() or target.read_bytes() != data:
        replace_atomically(target, data, durable=True)
    return path


def table_text(table: TunedTable) -> str:
    """The text of a table's file: sorted, one row per line."""
    head = {
        "format": TABLE_FORMAT,
        "device": table.device,
        "arch": table.arch,
        "driver": table.driver,
        "versions": dict(sorted(table.versions)),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(row_to_json(row))}" for row in sorted_rows(table.rows))
    return "\n".join(["{", *lines, ' "rows": [', *([rows] if rows else []), " ]", "}", ""])


def row_to_json(row: TunedRow) -> dict[str, Any]:
    """A row as a JSON object."""
    return {
        "kernel": row.kernel,
        "op": row.op,
        "launch": row.launch,
        "dtypes": dict(row.dtypes),
        "key": list(row.key),
        "constants": dict(row.constants),
        "options": dict(row.options),
        "us": round(row.microseconds, 3),
        "default_us": round(row.default_microseconds, 3),
        **({"spread": round(row.spread, 4)} if row.spread else {}),
    }


def row_from_json(data: Any) -> TunedRow:
    """Parse the JSON object of `row_to_json`.

    Raises:
        ValueError: it is not a row.
    """
    if not isinstance(data, dict):
        raise ValueError("is not an object")  # noqa: TRY004 - of the file, not of the program
    kernel, op = _checked(data, "kernel", str), _checked(data, "op", str)
    launch, key = _checked(data, "launch", int), _checked(data, "key", list)
    tables = [_checked(data, name, dict) for name in ("dtypes", "constants", "options")]
    if not all(isinstance(value, str) for value in tables[0].values()):
        raise ValueError("`dtypes` has a value that is not a dtype")
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in key):
        raise ValueError("`key` has a value that is not an integer")
    if not all(isinstance(value, _VALUES) for table in tables[1:] for value in table.values()):
        raise ValueError("`constants` and `options` have numbers, booleans, strings and null")
    if launch < 0:
        raise ValueError("`launch` is negative")
    dtypes, constants, options = (tuple(table.items()) for table in tables)
    times = _number(data, "us"), _number(data, "default_us")
    spread = _number({"spread": 0.0, **data}, "spread")
    return TunedRow(kernel, op, launch, dtypes, tuple(key), constants, options, *times, spread)


def _head_problems(data: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(data, dict):
        yield "", "is not a table of `kbuild tune`"
        return
    if data.get("format") != TABLE_FORMAT:
        # The rest is not checked, because another format may have other keys.
        yield "format", f"is {data.get('format')!r}: this kbuild reads {TABLE_FORMAT}"
        return
    for key, kind in (("device", str), ("arch", str), ("rows", list)):
        if not isinstance(data.get(key), kind) or (kind is str and not data[key]):
            yield key, "is missing or of another type"
    if not isinstance(data.get("versions", {}), dict):
        yield "versions", "is not an object"
    if isinstance(data.get("arch"), str) and not is_arch(data["arch"]):
        yield "arch", f"`{data['arch']}` is not a device's arch; `sm_90` or `gfx942` would be"


def is_arch(text: str) -> bool:
    """True for the arch of a table: `sm_90` without a feature letter, `gfx942`, `cpu`."""
    return text == CPU_DEVICE or _ARCH.fullmatch(text) is not None


def _lines(text: str) -> list[int]:
    """The line of each row in a file as `table_text` writes it: a row per line."""
    lines = enumerate(text.splitlines(), 1)
    return [number for number, line in lines if line.lstrip().startswith('{"')]


def _checked(data: dict[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    # `bool` is a subclass of `int`.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"`{name}` is missing or of another type")  # noqa: TRY004 - see `row_from_json`
    return value


def _number(data: dict[str, Any], name: str) -> float:
    value = data.get(name)
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1.0
    if not 0 <= number < _MAX_MICROSECONDS:
        what = "a share" if name == "spread" else "a time in microseconds"
        raise ValueError(f"`{name}` is not {what}")
    return float(number)


_STALE_HINT = "the row is ignored; run `kbuild tune` again, then remove it"


def stale_rows(file: TunedTableFile, ops: Sequence[OpSpec]) -> tuple[Problem, ...]:
    """Yield a warning for each row without a matching launch or candidate; it has no effect."""
    reasons = enumerate(_stale_reason(row, ops) for row in file.table.rows)
    return tuple(
        _row_problem(file.path, file.lines, at, reason[0], reason[1] or _STALE_HINT, "warning")
        for at, reason in reasons
        if reason is not None
    )


def _stale_reason(  # noqa: PLR0911
    row: TunedRow, ops: Sequence[OpSpec]
) -> tuple[str, str] | None:
    kernels = {op.kernel for op in ops}
    if row.kernel not in kernels:
        return f"there is no kernel `{row.kernel}`", did_you_mean(row.kernel, kernels)
    names = {op.name: op for op in ops if op.kernel == row.kernel}
    op = names.get(row.op)
    if op is None:
        return f"`{row.kernel}` has no op `{row.op}`", did_you_mean(row.op, names)
    if row.launch >= len(op.launches):
        return f"`{row.op}` has no launch {row.launch}", ""
    own_key = not op.key and any(launch.autotune for launch in op.launches)  # the kernel has one
    if len(row.key) != len(op.key) and not own_key:
        return f"its key has {len(row.key)} values, that of `{row.op}` {len(op.key)}", ""
    if dict(row.dtypes) not in [dict(dtypes) for dtypes in op.dtype_sets()]:
        return f"`{row.op}` is not compiled for these dtypes", ""
    launch = op.launches[row.launch]
    is_unknown = launch.autotune and not any(candidate.constants for candidate in launch.candidates)
    if is_unknown or row.among(launch.candidates) is not None:
        return None
    return f"no candidate is {candidate_toml(row.constants, row.options)}", ""


def candidate_toml(constants: ConstantPairs, options: ConstantPairs) -> str:
    """A candidate in the syntax of `build.toml`."""
    pairs = ", ".join(f"{name} = {_toml_value(value)}" for name, value in (*constants, *options))
    return "{ " + pairs + " }" if pairs else "{}"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value == NONE:
        return f'{{ string = "{NONE}" }}'
    return f'"{value}"' if value is None or isinstance(value, str) else str(value)
