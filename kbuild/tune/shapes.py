"""`--shapes FILE`: calls to measure instead of those of the ops' `tune` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.config.issue import dotted
from kbuild.config.suggest import one_of
from kbuild.errors import ConfigError, DamagedFileError, Problem, UsageError
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.tuning import read_cases
from kbuild.languages.spec.values import OpSpec, TuningCase
from kbuild.untrusted import parse_json, parse_toml, read_bytes, reading, reason_of


def read_shapes(path: Path, ops: Sequence[OpSpec]) -> dict[str, tuple[TuningCase, ...]]:
    """Op -> cases, from a TOML or JSON file with a table for each op.

    The table has `cases` and `sizes` as in `build.toml`; a list alone means `cases`.

    Raises:
        ConfigError: with everything that is wrong with it.
        UsageError: there is no such file.
    """
    place = Place(())
    found = {}
    by_name = {op.name: op for op in ops}
    for name, table in _document(path).items():
        where, op = place.at(name), by_name.get(name)
        if op is None:
            where.error(f"there is no op `{name}`", one_of(name, by_name))
            continue
        keys = table if isinstance(table, dict) else {"cases": table}
        if not _is_table(keys):
            where.error("must be a list of cases, or a table with `cases` and `sizes`")
            continue
        cases, sizes = keys.get("cases", ()), keys.get("sizes", {})
        found[name] = read_cases(cases, sizes, op.schema, op.sizes, where)
    if place.issues:
        shown = str(path)
        raise ConfigError(
            [Problem(shown, 0, dotted(i.path), i.message, i.hint) for i in place.issues]
        )
    return found


def _document(path: Path) -> Mapping[str, Any]:
    kind = "a table of ops"
    try:
        with reading(path, kind):
            data = read_bytes(path, kind)
            if path.suffix == ".json":
                return parse_json(data, path, kind)
            return parse_toml(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"--shapes: `{path}`: {error.strerror}") from error
    except DamagedFileError as error:
        hint = "TOML, or JSON in a file that ends with .json: `gemm = [{M = 1}]`"
        words = f"is no table of ops: {reason_of(error)}"
        raise ConfigError([Problem(str(path), 0, "", words, hint)]) from error


def _is_table(keys: Mapping[str, Any]) -> bool:
    cases, sizes = keys.get("cases", []), keys.get("sizes", {})
    return (
        keys.keys() <= {"cases", "sizes"}
        and isinstance(cases, list)
        and all(isinstance(case, dict) for case in cases)
        and isinstance(sizes, dict)
        and all(isinstance(values, list) for values in sizes.values())
    )
