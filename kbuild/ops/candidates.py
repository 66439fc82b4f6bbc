"""Reads the candidates of a launch: `configs`, `matrix`, and `keep`, which filters them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from kbuild.ops.constants import NONE, is_value, value_of
from kbuild.ops.dialects import DIALECTS, Dialect, OptionKind
from kbuild.ops.expression import Expression, ExpressionError
from kbuild.ops.expression.nodes import Name
from kbuild.ops.model import OpSpec
from kbuild.ops.scope import OpScope
from kbuild.ops.steps import Candidate, ConstantPairs, Launch, numbers_of
from kbuild.project.config.file_model import LaunchKeys
from kbuild.project.config.issue import IssueCollector, listed, one_of, toml_type

AUTOTUNE = "autotune"
_CANDIDATE_KEYS = ("when", "archs", "aligned")
"""Keys of a candidate that are neither constants nor launch options."""
_ARCH = re.compile(r"(?:[3-9]|1\d)\.\d[af]?|gfx[1-9]\d?[0-9a-f]{2}")
MAX_CANDIDATES = 4096


def constant_names(keys: LaunchKeys, dialect: Dialect) -> dict[str, None]:
    """Names of the constants that candidates set, in order."""
    tables = [*_tables(keys), keys.matrix]
    names = (name for table in tables for name in table)
    known = (*_CANDIDATE_KEYS, *dialect.options)
    return dict.fromkeys(name for name in names if name not in known)


def non_integer_names(keys: LaunchKeys) -> list[str]:
    """Names that candidates set to a value that is not an integer."""
    return [name for name, value in _settings(keys) if not isinstance(value, (int, NoneType))]


def optional_names(keys: LaunchKeys) -> list[str]:
    """Names that some candidate sets to None."""
    return [name for name, value in _settings(keys) if value is None]


def _settings(keys: LaunchKeys) -> Iterator[tuple[str, Any]]:
    rows = ((name, value) for name, values in keys.matrix.items() for value in values)
    for name, value in itertools.chain(*(table.items() for table in _tables(keys)), rows):
        yield name, value_of(value)


def read_candidates(
    keys: LaunchKeys, dialect: Dialect, scope: OpScope, place: IssueCollector
) -> tuple[Candidate, ...]:
    """Read the candidates in order; errors are added to `place`, the launch."""
    if keys.configs and keys.matrix:
        place.at("matrix").error("`configs` is given too", "keep one of the two")
    where = place.at("configs")
    if isinstance(keys.configs, str):
        if keys.configs != AUTOTUNE:
            where.error(f"`{keys.configs}` is neither a list nor `{AUTOTUNE}`")
        elif not dialect.own_candidates:
            where.error(f"`{dialect.name}` kernels do not define candidates", "list them")
        return ()
    if keys.matrix:
        return _matrix(keys.matrix, dialect, place.at("matrix"))
    expected = constant_names(keys, dialect)
    for index, item in enumerate(keys.configs):
        if not isinstance(item, dict):
            where.at(index).error(f"must be a table, not {toml_type(item)}")
    candidates = tuple(
        _candidate(table, expected, dialect, scope, where.at(index))
        for index, table in enumerate(_tables(keys))
    )
    _validate_candidates(candidates, where)
    return candidates or (Candidate(),)


def _tables(keys: LaunchKeys) -> list[Mapping[str, Any]]:
    if isinstance(keys.configs, str):
        return []
    return [item for item in keys.configs if isinstance(item, dict)]


def _candidate(
    table: Mapping[str, Any],
    expected: Mapping[str, None],
    dialect: Dialect,
    scope: OpScope,
    place: IssueCollector,
) -> Candidate:
    lacking = [name for name in expected if name not in table]
    if lacking:
        place.error(f"lacks {listed(lacking)}, which another candidate sets")
    constants = tuple(
        (name, value_of(table[name])) for name in expected if _is_constant(table, name, place)
    )
    options = tuple(
        (name, table[name])
        for name, kind in dialect.options.items()
        if _check_option(table, name, kind, place)
    )
    when = _when(table.get("when"), constants, scope, place.at("when"))
    archs = _archs(table.get("archs", []), place.at("archs"))
    aligned = table.get("aligned", False)
    if not isinstance(aligned, bool):
        place.at("aligned").error(f"must be a boolean, not {toml_type(aligned)}")
    return Candidate(constants, options, when, archs, aligned is True)


def _is_constant(table: Mapping[str, Any], name: str, place: IssueCollector) -> bool:
    if name not in table:
        return False
    fits = is_value(value_of(table[name]))
    if not fits:
        kind = toml_type(table[name])
        place.at(name).error(f"must be a number, a boolean or a string, not {kind}")
    return fits


def _check_option(
    table: Mapping[str, Any], name: str, kind: OptionKind, place: IssueCollector
) -> bool:
    """True if a valid value is given; None leaves the option to the compiler."""
    value = value_of(table.get(name, NONE))
    problem = "" if value is None else _option_problem(kind, value)
    if problem:
        place.at(name).error(problem)
    return value is not None and not problem


def _option_problem(kind: OptionKind, value: Any) -> str:
    """Problem of a launch option's value; empty if there is none."""
    if kind in ("string", "flag"):
        wanted, title = (str, "a string") if kind == "string" else (bool, "a boolean")
        return "" if isinstance(value, wanted) else f"must be {title}"
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return "must be an integer that is not negative"
    if kind == "power of two" and (value == 0 or value & (value - 1)):
        return f"must be a power of two, not {value}"
    return ""


def _when(
    text: Any, constants: ConstantPairs, scope: OpScope, place: IssueCollector
) -> Expression | None:
    if text is None:
        return None
    if not isinstance(text, str):
        place.error(f"must be a condition in quotes, not {toml_type(text)}")
        return None
    condition = scope.condition(text, place)
    if condition is None:
        return None
    try:
        bound = condition.bind(numbers_of(constants))
    except ExpressionError as error:
        place.error(f"`{text}`: {error.message} (column {error.column})")
        return None
    if bound.constant == 0:
        place.error(f"`{text}` never holds with these constants", "remove the candidate")
    # A candidate without a condition may be a default one.
    return None if bound.constant else bound


def _archs(value: Any, place: IssueCollector) -> tuple[str, ...]:
    if not isinstance(value, list):
        place.error('must be a list of archs, e.g. `["9.0"]`')
        return ()
    for index, item in enumerate(value):
        if not isinstance(item, str) or not _ARCH.fullmatch(item):
            place.at(index).error(f"`{item}` is not an arch", "e.g. `9.0`, `9.0a` or `gfx942`")
    return tuple(str(item) for item in value)


def _validate_candidates(candidates: Sequence[Candidate], place: IssueCollector) -> None:
    written = [repr(candidate) for candidate in candidates]
    for index, candidate in enumerate(written):
        if candidate in written[:index]:  # True equals 1, but is not written so
            first = written.index(candidate) + 1
            place.at(index).error(f"is the same as candidate {first}", "remove one of them")
    if candidates and all(candidate.is_conditional for candidate in candidates):
        used = {"`when`" for candidate in candidates if candidate.when is not None}
        used |= {"`aligned`" for candidate in candidates if candidate.aligned}
        keys = " or ".join(sorted(used, reverse=True))
        hint = f"omit {keys} in the last one, unless this is intended"
        place.warning(f"every candidate has {keys}: calls that match none are rejected", hint)


def _matrix(
    matrix: Mapping[str, Sequence[Any]], dialect: Dialect, place: IssueCollector
) -> tuple[Candidate, ...]:
    errors = place.errors
    count = 1
    for name, values in matrix.items():
        count *= len(values)
        if name in _CANDIDATE_KEYS:
            place.at(name).error(f"`{name}` belongs to a candidate", "write `configs` instead")
        if not values:
            place.at(name).error("lists no values")
        for index, value in enumerate(values):
            plain, kind = value_of(value), dialect.options.get(name)
            if not is_value(plain):
                place.at(name, index).error("must be a number, a boolean or a string")
            elif kind and plain is not None and (problem := _option_problem(kind, plain)):
                place.at(name, index).error(problem)
            # With their types, since True equals 1.
            elif (type(value), value) in [(type(earlier), earlier) for earlier in values[:index]]:
                place.at(name, index).error(f"`{value}` is listed twice", "keep one of them")
    if count > MAX_CANDIDATES:
        message = f"makes {count} candidates, more than {MAX_CANDIDATES}"
        place.error(message, "leave some values out")
    if place.errors > errors:
        return ()
    rows = itertools.product(*matrix.values())
    return tuple(_row([*zip(matrix, map(value_of, row), strict=True)], dialect) for row in rows)


def _row(pairs: Sequence[tuple[str, Any]], dialect: Dialect) -> Candidate:
    options = ((n, value) for n, value in pairs if n in dialect.options and value is not None)
    constants = ((n, value) for n, value in pairs if n not in dialect.options)
    return Candidate(tuple(constants), tuple(options))


def read_keep(
    texts: Sequence[str],
    candidates: Sequence[Candidate],
    dialect: Dialect,
    scope: OpScope,
    place: IssueCollector,
) -> tuple[Expression, ...]:
    """Read the conditions; errors are added to `place`, the key.

    They may use the constants in `scope`, and launch options that every candidate sets.
    """
    sets = [dict(candidate.options) for candidate in candidates]
    options = [name for name in dialect.options if all(name in settings for settings in sets)]
    new = [name for name in options if name not in scope.kinds]
    inner = scope.inside(new, place, is_open=scope.is_open)
    read = (inner.condition(text, place.at(index)) for index, text in enumerate(texts))
    return tuple(condition for condition in read if condition is not None)


def apply_keep(
    candidates: Sequence[Candidate], keep: Sequence[Expression], place: IssueCollector
) -> tuple[Candidate, ...]:
    """Return the candidates that can meet the conditions; conditions on the call go into `when`."""
    if not keep or not candidates:
        return tuple(candidates)
    kept = tuple(_matching_candidates(candidates, keep, place))
    if not kept:
        place.error("no candidate meets the conditions", "loosen them")
    return kept


def with_candidates(
    op: OpSpec, launch: Launch, own: Sequence[Candidate], place: IssueCollector, why: str = ""
) -> Launch | None:
    """Return an autotuned launch with the kernel's own candidates that `keep` allows.

    None after an error at `place`. `why` is the reason for a lack of candidates, if known.
    """
    if not launch.autotune:
        return launch
    errors = place.errors
    where = place.at("configs")
    if not own:
        decorator = f"@{op.language}.autotune"
        hint = why or f"decorate it with `{decorator}`, or list candidates in `configs`"
        where.error("the kernel defines no candidates", hint)
    dialect = DIALECTS.get(op.language)
    for name, value in (pair for candidate in own for pair in candidate.options):
        if name not in dialect.options:
            message = f"`{name}` is not an option that kbuild passes to `{dialect.name}`"
            where.error(message, one_of(name, dialect.options))
        elif problem := _option_problem(dialect.options[name], value):
            where.error(f"`{name}` of the kernel's own candidates {problem}")
    candidates = apply_keep(own, launch.keep, place.at("keep"))
    return replace(launch, candidates=candidates) if place.errors == errors else None


def _matching_candidates(
    candidates: Sequence[Candidate], keep: Sequence[Expression], place: IssueCollector
) -> Iterator[Candidate]:
    for candidate in candidates:
        pairs = (*candidate.constants, *candidate.options)
        known = numbers_of(pairs)
        when = candidate.when
        for index, condition in enumerate(keep):
            try:
                bound = condition.bind(known)
            except ExpressionError as error:
                place.at(index).error(f"`{condition}`: {error.message} (column {error.column})")
                return
            if bound.constant == 0:
                break
            for leaf in bound.leaves():  # constants that are texts or floats
                if isinstance(leaf, Name) and leaf.name in dict(pairs):
                    what = f"`{leaf.name}` is not an integer (column {leaf.column})"
                    place.at(index).error(f"`{bound}`: {what}")
            when = bound.and_also(when) if bound.constant is None else when
        else:
            # The loop was not left by `break`, so every condition may hold.
            yield replace(candidate, when=when)
