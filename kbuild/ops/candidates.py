"""Reads the candidates of a launch.

`configs`, `matrix`, and the `keep` conditions that filter them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from kbuild.config.file_model import LaunchKeys
from kbuild.config.issue import listed, one_of, toml_type
from kbuild.ops.constants import NONE, is_value, value_of
from kbuild.ops.dialects import DIALECTS, Dialect, OptionKind
from kbuild.ops.expression import Expression, ExpressionError
from kbuild.ops.expression.nodes import Name
from kbuild.ops.model import (
    Candidate,
    ConstantPairs,
    IssueCollector,
    Launch,
    OpSpec,
    Scalar,
    numbers_of,
)
from kbuild.ops.scope import OpScope

AUTOTUNE = "autotune"
_CANDIDATE_KEYS = ("when", "archs", "aligned")
"""Keys of a candidate with a meaning of their own."""
_ARCH = re.compile(r"(?:[3-9]|1\d)\.\d[af]?|gfx[1-9]\d?[0-9a-f]{2}")
MAX_CANDIDATES = 4096
"""More candidates than anybody compiles."""


def constant_names(keys: LaunchKeys, dialect: Dialect) -> dict[str, None]:
    """The constants that every candidate sets, in order; those that some lack are errors."""
    tables = [*_tables(keys), keys.matrix]
    names = (name for table in tables for name in table)
    known = (*_CANDIDATE_KEYS, *dialect.options)
    return dict.fromkeys(name for name in names if name not in known)


def non_integer_names(keys: LaunchKeys) -> list[str]:
    """Names that candidates set to something that is not an integer."""
    sets = [*(table.items() for table in _tables(keys)), _listed(keys.matrix)]
    values = ((name, value_of(value)) for pairs in sets for name, value in pairs)
    return [name for name, value in values if not isinstance(value, (int, NoneType))]


def optional_names(keys: LaunchKeys) -> list[str]:
    """Names that some candidate sets to None."""
    sets = [*(table.items() for table in _tables(keys)), _listed(keys.matrix)]
    return [name for pairs in sets for name, value in pairs if value_of(value) is None]


def _listed(matrix: Mapping[str, Sequence[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in matrix.items() for value in values]


def is_autotuned(keys: LaunchKeys) -> bool:
    """True when the kernel defines its candidates."""
    return bool(keys.configs == AUTOTUNE)


def read_candidates(
    keys: LaunchKeys, dialect: Dialect, scope: OpScope, place: IssueCollector
) -> tuple[Candidate, ...]:
    """The candidates in order; errors at `place`, the launch."""
    if keys.configs and keys.matrix:
        place.at("matrix").error("`configs` is given too", "keep one of the two")
    if isinstance(keys.configs, str):
        _validate_key(keys.configs, dialect, place.at("configs"))
        return ()
    if keys.matrix:
        return _matrix(keys.matrix, dialect, place.at("matrix"))
    tables = _tables(keys)
    expected = constant_names(keys, dialect)
    where = place.at("configs")
    for index, item in enumerate(keys.configs):
        if not isinstance(item, dict):
            where.at(index).error(f"must be a table, not {toml_type(item)}")
    candidates = tuple(
        _candidate(table, expected, dialect, scope, where.at(index))
        for index, table in enumerate(tables)
    )
    _validate_candidates(candidates, where)
    return candidates or (Candidate(),)


def _tables(keys: LaunchKeys) -> list[Mapping[str, Any]]:
    if isinstance(keys.configs, str):
        return []
    return [item for item in keys.configs if isinstance(item, dict)]


def _validate_key(word: str, dialect: Dialect, place: IssueCollector) -> None:
    if word != AUTOTUNE:
        place.error(f"`{word}` is neither a list nor `{AUTOTUNE}`")
    elif not dialect.own_candidates:
        place.error(f"`{dialect.name}` kernels do not define candidates", "list them")


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
    return Candidate(constants, options, when, archs, _aligned(table, place.at("aligned")))


def _aligned(table: Mapping[str, Any], place: IssueCollector) -> bool:
    value = table.get("aligned", False)
    if not isinstance(value, bool):
        place.error(f"must be a boolean, not {toml_type(value)}")
    return value is True


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
    """Whether it is given; an option that is None is left to the compiler."""
    value = value_of(table.get(name, NONE))
    problem = "" if value is None else _option_problem(kind, value)
    if problem:
        place.at(name).error(problem)
    return value is not None and not problem


def _option_problem(kind: OptionKind, value: Any) -> str:
    """What is wrong with a launch option's value; nothing when it is fine."""
    if kind == "string":
        return "" if isinstance(value, str) else "must be a string"
    if kind == "flag":
        return "" if isinstance(value, bool) else "must be a boolean"
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
            plain = value_of(value)
            if not is_value(plain):
                place.at(name, index).error("must be a number, a boolean or a string")
            elif (
                name in dialect.options
                and plain is not None
                and (problem := _option_problem(dialect.options[name], plain))
            ):
                place.at(name, index).error(problem)
            elif (type(value), value) in [(type(earlier), earlier) for earlier in values[:index]]:
                place.at(name, index).error(f"`{value}` is listed twice", "keep one of them")
    if count > MAX_CANDIDATES:
        place.error(
            f"makes {count} candidates, more than {MAX_CANDIDATES}", "leave some values out"
        )
    if place.errors > errors:
        return ()
    rows = itertools.product(*matrix.values())
    return tuple(_row(dict(zip(matrix, map(value_of, row), strict=True)), dialect) for row in rows)


def _row(values: Mapping[str, Scalar | None], dialect: Dialect) -> Candidate:
    options = tuple(
        (name, value)
        for name, value in values.items()
        if name in dialect.options and value is not None
    )
    constants = tuple((name, values[name]) for name in values if name not in dialect.options)
    return Candidate(constants, options)


def read_keep(
    texts: Sequence[str],
    candidates: Sequence[Candidate],
    dialect: Dialect,
    scope: OpScope,
    place: IssueCollector,
) -> tuple[Expression, ...]:
    """The conditions; errors at `place`, the key.

    Args:
        texts: as they are written.
        candidates: those of the section; none when they are the kernel's own.
        dialect: whose options may be used by name, where every candidate sets them.
        scope: with the constants of the candidates.
        place: the `keep` key.
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
    """The candidates that can meet the conditions; what depends on the call goes into `when`."""
    if not keep or not candidates:
        return tuple(candidates)
    kept = tuple(_matching_candidates(candidates, keep, place))
    if not kept:
        place.error("no candidate meets the conditions", "loosen them")
    return kept


def with_candidates(
    op: OpSpec, launch: Launch, own: Sequence[Candidate], place: IssueCollector, why: str = ""
) -> Launch | None:
    """A launch with `configs = "autotune"` once the kernel's own candidates are known.

    Args:
        op: the op of the launch.
        launch: returned as it is when the section lists its candidates.
        own: the kernel's own candidates.
        place: collects what is wrong; `Place(launch.path)`.
        why: the reason if it has none.

    Returns:
        The launch with the candidates that `keep` leaves; None after an error.
    """
    if not launch.autotune:
        return launch
    errors = place.errors
    where = place.at("configs")
    if not own:
        decorator = f"@{op.language}.autotune"
        hint = why or f"decorate it with `{decorator}`, or list candidates in `configs`"
        where.error("the kernel defines no candidates", hint)
    for candidate in own:
        _validate_options(candidate, DIALECTS.get(op.language), where)
    candidates = apply_keep(own, launch.keep, place.at("keep"))
    return replace(launch, candidates=candidates) if place.errors == errors else None


def _validate_options(candidate: Candidate, dialect: Dialect, place: IssueCollector) -> None:
    for name, value in candidate.options:
        if name not in dialect.options:
            hint = one_of(name, dialect.options)
            place.error(f"`{name}` is not an option that kbuild passes to `{dialect.name}`", hint)
        elif problem := _option_problem(dialect.options[name], value):
            place.error(f"`{name}` of the kernel's own candidates {problem}")


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
            _validate_names(bound, pairs, place.at(index))
            when = bound.and_also(when) if bound.constant is None else when
        else:
            yield replace(candidate, when=when)


def _validate_names(
    condition: Expression, pairs: Sequence[tuple[str, object]], place: IssueCollector
) -> None:
    """What a candidate sets to a text or a fraction cannot be asked for."""
    texts = dict(pairs)
    for leaf in condition.leaves():
        if isinstance(leaf, Name) and leaf.name in texts:
            place.error(f"`{condition}`: `{leaf.name}` is not an integer (column {leaf.column})")
