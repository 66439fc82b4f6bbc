"""Reads a `[kernel.*]` section in a DSL: language, toolchain, and each op with its schema."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from kbuild.ops.arguments import (
    add_schema_names,
    read_schema,
    relocated,
    result_names,
    sized,
    spread,
)
from kbuild.ops.aten import read_aten_calls
from kbuild.ops.dialects import DIALECTS, Dialect
from kbuild.ops.dtypes import read_dtypes, read_fills
from kbuild.ops.expression import Expression
from kbuild.ops.launches import read_launches
from kbuild.ops.model import OpSpec, Projection
from kbuild.ops.schema.model import Schema
from kbuild.ops.scope import OpScope
from kbuild.ops.shapes import ShapeTableReader, read_views, validate_sharing, view_rules
from kbuild.ops.tuning import read_tuning
from kbuild.project.config.file_model import OpSection
from kbuild.project.config.issue import Issue, IssueCollector, one_of
from kbuild.project.config.model_errors import table_issues


@dataclass(frozen=True)
class SectionContext:
    """The section that an op belongs to."""

    kernel: str
    dialect: Dialect
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]


def read_op(section: OpSection, owner: SectionContext, place: IssueCollector) -> OpSpec | None:
    """Read an op; None if it has errors, which are added at and below `place`."""
    errors = place.errors
    schema = read_schema(section.schema_, place.at("schema"))
    if schema is None:
        return None
    # Rules for a list apply to each of its tensors; issues are moved back to the list below.
    schema, before = sized(schema, section, place.at("schema")), len(place.issues)
    spec = _read_op_spec(spread(section, schema), schema, owner, place)
    place.issues[before:] = relocated(place.issues[before:], section)
    return spec if place.errors == errors else None


def _read_op_spec(
    section: OpSection, schema: Schema, owner: SectionContext, place: IssueCollector
) -> OpSpec:
    inputs = schema.tensors
    optional = [a.name for a in (*schema.arguments, *inputs) if a.type.is_optional]
    named = zip(result_names(schema), schema.returns, strict=True)
    maybe = [name for name, result in named if result.type.is_optional]
    scope = OpScope(optional=[*optional, *maybe])
    add_schema_names(schema, scope, place.at("schema"))
    for index, name in enumerate(section.temporaries):
        scope.add(name, "temporary", place.at("temporaries", index))
    views = {name for name in section.views if name in result_names(schema)}
    shapes = ShapeTableReader(section.shapes, schema, scope, views, place.at("shapes"))
    sizes = shapes.sizes()
    let = _let(section, scope, place.at("let"))
    rules = shapes.rules(dict(let))
    # `require`, `returned` and `key` are evaluated before results and temporaries exist.
    early = scope.before_allocation()
    allocated = [name for name in result_names(schema) if name not in views]
    allocated += section.temporaries
    if section.fallback == "jit" and not owner.dialect.has_jit_fallback:
        message = f"kbuild cannot launch `{owner.dialect.name}` kernels with their DSL"
        place.at("fallback").error(message, "leave it out: a call without an image is an error")
    # Required tensors first: optional ones are compared with them.
    names = sorted((argument.name for argument in inputs), key=lambda name: name in scope.optional)
    dtypes = read_dtypes(section.dtypes, schema, names, allocated, place.at("dtypes"))
    contiguous = _contiguous(section.contiguous, names, place.at("contiguous"))
    viewed = read_views(section.views, maybe, scope, place.at("views"))
    view_shapes, view_dtypes = view_rules(viewed)
    aten = read_aten_calls(section, schema, allocated, scope, place)
    validate_sharing(aten, result_names(schema), scope, place)
    if section.fallback == "jit" and (aten or viewed):
        message = "runs neither ATen calls nor views"
        place.at("fallback").error(message, "leave it out: a call without an image is an error")
    return OpSpec(
        path=place.path,
        kernel=owner.kernel,
        language=owner.dialect.name,
        toolchain=owner.toolchain,
        sources=owner.sources,
        schema=schema,
        results=result_names(schema),
        temporaries=section.temporaries,
        shapes=(*rules, *view_shapes),
        sizes=sizes,
        dtypes=(*dtypes, *view_dtypes),
        let=let,
        require=_each(early.condition, section.require, place.at("require")),
        returned=_returned(section.returned, maybe, early, place.at("returned")),
        contiguous=contiguous,
        key=_each(early.expression, section.key, place.at("key")),
        fallback=section.fallback,
        launches=read_launches(section, schema.name, owner.dialect, scope, place),
        tune=read_tuning(section.tune, schema, sizes, place.at("tune")),
        hooks=section.hooks,
        projections=tuple(_projections(section, schema, place.at("projections"))),
        fills=read_fills(section.zero, section.fill, schema, allocated, contiguous, dtypes, place),
        views=viewed,
        aten=aten,
    )


def _projections(section: OpSection, schema: Schema, place: IssueCollector) -> Iterator[Projection]:
    """Yield the ops that return only some of the results."""
    results = result_names(schema)
    if section.projections and section.fallback == "jit":
        place.error("cannot fall back on the DSL", 'leave out `fallback = "jit"`')
    for index, written in enumerate(section.projections):
        where = place.at(index)
        projection_schema = read_schema(written.schema_, where.at("schema"))
        for name in written.results:
            if name not in results:
                where.at("results").error(f"`{name}` is not a result", one_of(name, results))
        if projection_schema is None:
            continue
        types = [argument.type.name for argument in projection_schema.arguments]
        if types != [argument.type.name for argument in schema.arguments]:
            where.at("schema").error("has other arguments than the op", f"those of `{schema}`")
        elif len(projection_schema.returns) != len(written.results):
            where.at("results").error("are not as many as the schema says")
        else:
            yield Projection(projection_schema, written.results)


def _let(
    section: OpSection, scope: OpScope, place: IssueCollector
) -> tuple[tuple[str, Expression], ...]:
    definitions = []
    for name, text in section.let.items():
        where = place.at(name)
        if not name.isidentifier():
            where.error(f"`{name}` cannot be used in an expression")
        expression = scope.before_allocation().expression(text, where)
        if scope.add(name, "let", where) and expression is not None:
            definitions.append((name, expression))
            scope.let[name] = expression
    return tuple(definitions)


def _returned(
    table: Mapping[str, str], maybe: Sequence[str], scope: OpScope, place: IssueCollector
) -> tuple[tuple[str, Expression], ...]:
    """Conditions under which results that may be None are returned."""
    for name in table.keys() - set(maybe):
        hint = f"write `Tensor? {name}` in the schema" if not maybe else one_of(name, maybe)
        place.at(name).error(f"`{name}` is not a result that may be None", hint)
    for name in maybe:
        if name not in table:
            hint = f'e.g. `returned = {{ {name} = "with_it" }}`, with an argument `bool with_it`'
            place.error(f"does not say when `{name}` is returned", hint)
    read = ((name, scope.condition(table[name], place.at(name))) for name in maybe if name in table)
    return tuple((name, condition) for name, condition in read if condition is not None)


def _each(
    read: Callable[[Any, IssueCollector], Expression | None],
    texts: Sequence[str | int],
    place: IssueCollector,
) -> tuple[Expression, ...]:
    expressions = (read(text, place.at(index)) for index, text in enumerate(texts))
    return tuple(expression for expression in expressions if expression is not None)


def _contiguous(
    value: Sequence[Any] | bool, inputs: Sequence[str], place: IssueCollector
) -> tuple[str, ...]:
    if isinstance(value, bool):
        return tuple(inputs) if value else ()
    for index, name in enumerate(value):
        if name not in inputs:
            hint = one_of(str(name), inputs)
            place.at(index).error(f"`{name}` is not a tensor argument", hint)
    return tuple(dict.fromkeys(name for name in value if isinstance(name, str)))


_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.+!_-]*)")


@dataclass(frozen=True)
class DslSection:
    """A `[kernel.<name>]` section in a Python DSL, read once: later stages take this value."""

    name: str
    language: str
    """Empty for a language that kbuild does not know."""
    toolchain: tuple[str, ...]
    """Exact pins, such as `triton==3.9.0`."""
    sources: tuple[str, ...]
    """POSIX paths relative to the project; the file with the kernel functions is first."""
    ops: tuple[OpSpec, ...]
    """The ops without errors."""
    issues: tuple[Issue, ...] = field(compare=False)
    table: Mapping[str, Any] = field(repr=False)
    """The section as `build.toml` has it, to be written into plans and tuning manifests."""
    origin: str = ""
    """The part of the author's source that a plug-in read the section from; empty for sections of
    `build.toml`. See `PluginSection`."""

    @property
    def errors(self) -> tuple[Issue, ...]:
        """The issues that prevent a build."""
        return tuple(issue for issue in self.issues if issue.severity == "error")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DslSection:
        """Parse `name` and `section` of a kernel in a plan or manifest.

        Raises:
            ValueError: the section has an error.
        """
        section = read_section(
            str(data["name"]), data["section"], origin=str(data.get("origin", ""))
        )
        if section.errors:
            raise ValueError(f"`kernel.{section.name}`: {section.errors[0].message}")
        return section

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)


def read_section(
    name: str, table: Mapping[str, Any], *, origin: str = "", needs_ops: bool = True
) -> DslSection:
    """Read a `[kernel.<name>]` table of TOML.

    Args:
        name: name of the kernel.
        table: the section.
        origin: see `DslSection`. Warnings about such a section are dropped, since its ops are
            generated by a plug-in.
        needs_ops: False where plug-ins read ops from another key of the table.
    """
    place = IssueCollector(("kernel", name))
    dialect = _dialect(table.get("language"), place.at("language"))
    toolchain = _toolchain(table.get("toolchain"), dialect, place)
    paths = [item for item in _as_list(table.get("src")) if isinstance(item, str)]
    sources = tuple(dict.fromkeys(map(posixpath.normpath, paths)))
    if not sources:
        place.at("src").error("names no Python source", "the file with the kernel functions first")
    owner = SectionContext(name, dialect or Dialect(), toolchain, sources)
    has_ops = needs_ops or "op" in table
    if has_ops and not owner.dialect.takes_ops:
        hint = f'write `[[kernel.{name}.capture]]` with `function = "module:name"`'
        place.at("op").error(
            f"kernels in {owner.dialect.name} become ops by `kbuild capture`", hint
        )
    ops = tuple(_ops(_as_list(table.get("op")), owner, place.at("op"))) if has_ops else ()
    issues = (i for i in place.issues if not origin or i.severity == "error")
    return DslSection(
        name,
        dialect.name if dialect is not None else "",
        toolchain,
        sources,
        # Without a known language, the ops were read with rules that do not apply.
        ops if dialect is not None else (),
        tuple(issues),
        table,
        origin,
    )


def _dialect(value: Any, place: IssueCollector) -> Dialect | None:
    dialect = DIALECTS.find(value) if isinstance(value, str) else None
    if value is None:
        place.error("is missing", one_of("", DIALECTS.names()))
    elif dialect is None:
        place.error(f"`{value}` is not a language", one_of(str(value), DIALECTS.names()))
    return dialect


def _toolchain(value: Any, dialect: Dialect | None, place: IssueCollector) -> tuple[str, ...]:
    where = place.at("toolchain")
    pins = [value] if isinstance(value, str) else _as_list(value)
    wanted = dialect.distributions if dialect is not None else ()
    name, names = wanted[0] if wanted else "name", []
    for index, pin in enumerate(pins):
        match = _PIN.fullmatch(pin) if isinstance(pin, str) else None
        if match is None:
            pin_place = where.at(index) if isinstance(value, list) else where
            pin_place.error(f"`{pin}` is not an exact version", f"write `{name}==<version>`")
        else:
            names.append(match["name"].lower().replace("_", "-"))
    for name in wanted if len(names) == len(pins) else ():
        if name not in names:
            every = ", ".join(f'"{distribution}==<version>"' for distribution in wanted)
            which = (
                f"it: `toolchain = {every}`"
                if len(wanted) == 1
                else f"both: `toolchain = [{every}]`"
            )
            where.error(f"does not say which version of `{name}` compiles this", f"pin {which}")
    return tuple(str(pin) for pin in pins)


def _ops(tables: Sequence[Any], owner: SectionContext, place: IssueCollector) -> Iterator[OpSpec]:
    if not tables:
        place.error("describes no op", f"add a `[[kernel.{owner.kernel}.op]]` table")
    seen: set[str] = set()
    for index, table in enumerate(tables):
        where = place.at(index)
        try:
            section = OpSection.model_validate(table)
        except ValidationError as error:
            place.issues.extend(table_issues(error, OpSection, where.path))
            continue
        spec = read_op(section, owner, where)
        if spec is None:
            continue
        names = [spec.name, *(projection.name for projection in spec.projections)]
        twice = [name for name in names if name in seen or names.count(name) > 1]
        if twice:
            where.at("schema").error(f"the op `{twice[0]}` is described twice")
        else:
            seen.update(names)
            yield spec


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
