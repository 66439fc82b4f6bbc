"""One `[[kernel.<name>.op]]` table: from its keys to a checked `OpSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.config.languages import OpSection
from kbuild.config.suggest import one_of
from kbuild.languages.expression import Expression
from kbuild.languages.schema import Schema
from kbuild.languages.spec.dialects import Dialect
from kbuild.languages.spec.dtypes import read_dtypes
from kbuild.languages.spec.fills import read_fills
from kbuild.languages.spec.launches import read_launches
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Scope
from kbuild.languages.spec.shapes import Shapes
from kbuild.languages.spec.signature import enter, read_schema, result_names
from kbuild.languages.spec.tensor_lists import relocated, sized, spread
from kbuild.languages.spec.tuning import read_tuning
from kbuild.languages.spec.values import OpSpec


@dataclass(frozen=True)
class Owner:
    """The section that an op stands in."""

    kernel: str
    dialect: Dialect
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]


def read_op(section: OpSection, owner: Owner, place: Place) -> OpSpec | None:
    """The op, None when anything is wrong with it; errors at and below `place`."""
    errors = place.errors
    schema = read_schema(section.schema_, place.at("schema"))
    if schema is None:
        return None
    schema, before = sized(schema, section, place.at("schema")), len(place.issues)
    spec = _read(spread(section, schema), schema, owner, place)
    place.issues[before:] = relocated(place.issues[before:], section)
    return spec if place.errors == errors else None


def _read(section: OpSection, schema: Schema, owner: Owner, place: Place) -> OpSpec:
    inputs = schema.tensors
    optional = [a.name for a in (*schema.arguments, *inputs) if a.type.is_optional]
    maybe = [
        name
        for name, one in zip(result_names(schema), schema.returns, strict=True)
        if one.type.is_optional
    ]
    scope = Scope(optional=[*optional, *maybe])
    enter(schema, scope, place.at("schema"))
    for index, name in enumerate(section.temporaries):
        scope.add(name, "temporary", place.at("temporaries", index))
    shapes = Shapes(section.shapes, schema, scope, place.at("shapes"))
    sizes = shapes.sizes()
    let = _let(section, scope, place.at("let"))
    rules = shapes.rules(dict(let))
    early = scope.before_allocation()
    allocated = (*result_names(schema), *section.temporaries)
    names = sorted((argument.name for argument in inputs), key=lambda name: name in scope.optional)
    dtypes = read_dtypes(section.dtypes, schema, names, allocated, place.at("dtypes"))
    contiguous = _contiguous(section.contiguous, names, place.at("contiguous"))
    return OpSpec(
        path=place.path,
        kernel=owner.kernel,
        language=owner.dialect.name,
        toolchain=owner.toolchain,
        sources=owner.sources,
        schema=schema,
        results=result_names(schema),
        temporaries=section.temporaries,
        shapes=rules,
        sizes=sizes,
        dtypes=dtypes,
        let=let,
        require=_conditions(section.require, early, place.at("require")),
        returned=_returned(section.returned, maybe, early, place.at("returned")),
        contiguous=contiguous,
        key=_expressions(section.key, early, place.at("key")),
        fallback=section.fallback,
        launches=read_launches(section, schema.name, owner.dialect, scope, place),
        tune=read_tuning(section.tune, schema, sizes, place.at("tune")),
        fills=read_fills(section.zero, section.fill, schema, allocated, contiguous, dtypes, place),
    )


def _let(section: OpSection, scope: Scope, place: Place) -> tuple[tuple[str, Expression], ...]:
    found = []
    for name, text in section.let.items():
        where = place.at(name)
        if not name.isidentifier():
            where.error(f"`{name}` cannot be used in an expression")
        expression = scope.before_allocation().expression(text, where)
        if scope.add(name, "let", where) and expression is not None:
            found.append((name, expression))
            scope.let[name] = expression
    return tuple(found)


def _returned(
    table: Mapping[str, str], maybe: Sequence[str], scope: Scope, place: Place
) -> tuple[tuple[str, Expression], ...]:
    """When the results are there that may be None."""
    for name in table.keys() - set(maybe):
        hint = f"write `Tensor? {name}` in the schema" if not maybe else one_of(name, maybe)
        place.at(name).error(f"`{name}` is not a result that may be None", hint)
    for name in maybe:
        if name not in table:
            hint = f'e.g. `returned = {{ {name} = "with_it" }}`, with an argument `bool with_it`'
            place.error(f"does not say when `{name}` is returned", hint)
    read = ((name, scope.condition(table[name], place.at(name))) for name in maybe if name in table)
    return tuple((name, condition) for name, condition in read if condition is not None)


def _conditions(texts: Sequence[str], scope: Scope, place: Place) -> tuple[Expression, ...]:
    read = (scope.condition(text, place.at(index)) for index, text in enumerate(texts))
    return tuple(condition for condition in read if condition is not None)


def _expressions(texts: Sequence[str | int], scope: Scope, place: Place) -> tuple[Expression, ...]:
    read = (scope.expression(text, place.at(index)) for index, text in enumerate(texts))
    return tuple(expression for expression in read if expression is not None)


def _contiguous(
    value: Sequence[Any] | bool, inputs: Sequence[str], place: Place
) -> tuple[str, ...]:
    if isinstance(value, bool):
        return tuple(inputs) if value else ()
    for index, name in enumerate(value):
        if name not in inputs:
            hint = one_of(str(name), inputs)
            place.at(index).error(f"`{name}` is not a tensor argument", hint)
    return tuple(dict.fromkeys(name for name in value if isinstance(name, str)))
