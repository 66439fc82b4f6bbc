"""One launch of a kernel function: arguments, constants, candidates, grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.config.languages import LaunchKeys, LaunchSection, OpSection
from kbuild.languages.expression import Expression
from kbuild.languages.spec.candidates import (
    AUTOTUNE,
    constant_names,
    is_autotuned,
    optional_names,
    read_candidates,
    word_names,
)
from kbuild.languages.spec.constants import is_number, read_constants
from kbuild.languages.spec.dialects import Dialect
from kbuild.languages.spec.keep import kept, read_keep
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Scope
from kbuild.languages.spec.sources import source_of
from kbuild.languages.spec.values import Launch, Source

_AXES = 3
"""Dimensions of a grid."""


def read_launches(
    op: OpSection, name: str, dialect: Dialect, scope: Scope, place: Place
) -> tuple[Launch, ...]:
    """The launches of an op in order; errors at `place`, the op."""
    if not op.launch:
        return (_launch(op, (name, f"{name}_kernel"), dialect, scope, place),)
    for key in LaunchKeys.model_fields:
        if getattr(op, key) != LaunchKeys.model_fields[key].default:
            hint = "each launch has its own"
            place.at(key).error("belongs into the `launch` tables", hint)
    found = []
    for index, section in enumerate(op.launch):
        where = place.at("launch", index)
        if section.function is None:
            where.error("has no `function`", "with several launches, name each one's")
        found.append(_launch(section, (), dialect, scope, where))
    return tuple(found)


def _launch(
    keys: OpSection | LaunchSection,
    functions: tuple[str, ...],
    dialect: Dialect,
    outer: Scope,
    place: Place,
) -> Launch:
    is_open = is_autotuned(keys) or bool(dialect.settled)
    _judge_settled(keys, dialect, place)
    when = _when(keys, outer, place.at("when"))
    tuned = constant_names(keys, dialect)
    words = word_names(keys)
    outer = outer.where(when)
    scope = outer.inside(tuned, place.at("configs"), words=words, is_open=is_open)
    scope = replace(scope, optional={*scope.optional, *optional_names(keys)})
    candidates = read_candidates(keys, dialect, scope, place)
    keep = read_keep(keys.keep, candidates, dialect, scope, place.at("keep"))
    constants = read_constants(keys.constants, scope, place.at("constants"))
    words = [one.name for one in constants if not is_number(one)]
    loose = is_open and not dialect.settled
    scope = scope.inside(_new(keys.constants), place.at("constants"), words=words, is_open=loose)
    for name, value in keys.constants.items():
        if isinstance(value, (list, tuple)) and not dialect.shaped:
            where = place.at("constants", name)
            where.error(f"`{dialect.name}` kernels take no tuple as a constant")
    for name in keys.args.keys() & {*tuned, *keys.constants}:
        place.at("args", name).error(f"`{name}` is a constant as well", "keep one of the two")
    return Launch(
        path=place.path,
        functions=_functions(keys.function, functions, place.at("function")),
        args=_arguments(keys, dialect, scope, place.at("args")),
        constants=constants,
        candidates=kept(candidates, keep, place.at("keep")),
        autotune=is_open,
        grid=_grid(keys.grid, dialect, scope, place),
        divisible=_once(keys.divisible, place.at("divisible")),
        ones=_once(keys.ones, place.at("ones")),
        int64=_once(keys.int64, place.at("int64")),
        when=when,
        keep=keep if is_open else (),
    )


def _judge_settled(keys: LaunchKeys, dialect: Dialect, place: Place) -> None:
    for key in dialect.settled:
        value = getattr(keys, key)
        if value not in (LaunchKeys.model_fields[key].default, AUTOTUNE):
            message = f"`{dialect.name}` kernels say that themselves"
            place.at(key).error(message, "remove it here; change the kernel's source")


def _when(keys: OpSection | LaunchSection, scope: Scope, place: Place) -> Expression | None:
    if isinstance(keys, OpSection) or keys.when is None:
        return None
    condition = scope.condition(keys.when, place)
    if condition is not None and condition.constant is not None:
        holds = "always holds" if condition.constant else "never holds"
        place.error(f"`{condition}` {holds}", "remove it" if condition.constant else "")
    return condition


def _new(constants: Mapping[str, Any]) -> list[str]:
    """Constants with a value of their own; `N = { value = "N", ... }` is the dimension itself."""
    values = {name: v.get("value") if isinstance(v, dict) else v for name, v in constants.items()}
    return [
        name
        for name, value in values.items()
        if value != name and name.isidentifier() and not isinstance(value, (list, tuple))
    ]


def _functions(written: str | None, default: tuple[str, ...], place: Place) -> tuple[str, ...]:
    if written is None:
        return default
    if not written.isidentifier():
        place.error(f"`{written}` is not the name of a function")
    return (written,)


def _arguments(
    keys: LaunchKeys, dialect: Dialect, scope: Scope, place: Place
) -> tuple[tuple[str, Source], ...]:
    read = (
        (name, source_of(value, dialect, scope, place.at(name)))
        for name, value in keys.args.items()
    )
    return tuple((name, source) for name, source in read if source is not None)


def _grid(
    values: Sequence[str | int], dialect: Dialect, scope: Scope, place: Place
) -> tuple[Expression, ...]:
    where = place.at("grid")
    if not values and dialect.needs_grid:
        hint = 'e.g. `grid = ["cdiv(N, BLOCK)"]`'
        place.error("has no `grid`: how many blocks are launched?", hint)
    if len(values) > _AXES:
        where.error(f"has {len(values)} dimensions", f"a grid has at most {_AXES}")
    read = [scope.expression(value, where.at(index)) for index, value in enumerate(values)]
    for index, expression in enumerate(read):
        if expression is not None and (expression.constant or 1) < 0:
            where.at(index).error(f"`{expression}` is negative")
    return tuple(expression for expression in read if expression is not None)


def _once(names: Sequence[str], place: Place) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            place.at(index).error(f"`{name}` is listed twice", "keep one of them")
    return tuple(dict.fromkeys(names))
