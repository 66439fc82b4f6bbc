"""The `shapes` and `views` of an op: names of dimensions, and tensors that share memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kbuild.ops.expression import Expression, ExpressionError, parse
from kbuild.ops.expression.nodes import RUNTIME_QUERIES, Name
from kbuild.ops.model import Dimension, DtypeRule, ShapeRule, TensorView
from kbuild.ops.schema.model import Schema
from kbuild.ops.scope import OpScope
from kbuild.ops.steps import AtenCall
from kbuild.project.config.file_model import ViewSection
from kbuild.project.config.issue import IssueCollector, one_of

ELLIPSIS = "..."


class ShapeTableReader:
    """Reads the `shapes` table of an op in two steps, between which `let` is read.

    The first step finds the names of dimensions; the second reads expressions over all names.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        schema: Schema,
        scope: OpScope,
        views: Collection[str],
        place: IssueCollector,
    ) -> None:
        self._place = place
        self._scope = scope
        self._views = views
        self._required = [a.name for a in schema.tensors if not a.type.is_optional]
        tensors = scope.tensors()
        self._table: dict[str, Any] = {}
        for tensor, value in table.items():
            if tensor in views:
                place.at(tensor).error(f"`{tensor}` has its shape in `views`", "remove it here")
            elif tensor not in tensors:
                place.at(tensor).error(f"`{tensor}` is not a tensor", one_of(tensor, tensors))
            else:
                self._table[tensor] = value

    def sizes(self) -> tuple[Dimension, ...]:
        """Return named dimensions, each with the first required tensor that has it."""
        dimensions: dict[str, Dimension] = {}
        # An optional tensor may be None, and then nothing could tell the size.
        for tensor in self._required:
            value = self._table.get(tensor)
            dims: list[Any] = value if isinstance(value, list) else []
            for position, dim in enumerate(dims):
                name = _dimension_name(dim)
                if name is None or name in dimensions or name in self._scope.kinds:
                    continue
                behind = ELLIPSIS in dims[:position]
                # Behind `...`, dimensions are counted from the last one.
                axis = position - len(dims) if behind else position
                dimensions[name] = Dimension(name, tensor, axis)
        for name in dimensions:
            self._scope.add(name, "size", self._place)
        self._scope.shapes.update(
            {
                name: ShapeRule(name, dims=(parse(0),) * len(dims))
                for name, dims in self._table.items()
                if isinstance(dims, list) and ELLIPSIS not in dims
            }
        )
        return tuple(dimensions.values())

    def rules(self, let: Mapping[str, Expression]) -> tuple[ShapeRule, ...]:
        """Return the valid rules; report invalid ones, and results without a rule."""
        scope = self._scope.before_allocation()
        read = (self._rule(tensor, value, scope) for tensor, value in self._table.items())
        rules = {rule.tensor: rule for rule in read if rule is not None}
        for tensor, rule in list(rules.items()):
            seen = {tensor}
            end = rule
            while end.like in rules and end.like not in seen:
                seen.add(end.like)
                end = rules[end.like]
            if end.like in seen:
                self._place.at(tensor).error(f"`{tensor}` refers to its own shape")
                rules.pop(tensor)
        self._judge_device(rules, let)
        self._judge_batch(rules)
        self._judge_allocated()
        self._scope.shapes.update(rules)
        return tuple(rules.values())

    def _rule(self, tensor: str, value: Any, scope: OpScope) -> ShapeRule | None:
        place = self._place.at(tensor)
        if isinstance(value, str):
            if value not in scope.tensors():
                hint = f"write the dimensions as a list, or one of {', '.join(scope.tensors())}"
                place.error(f"`{value}` is not a tensor argument", hint)
                return None
            if value in scope.optional:
                place.error(f"`{value}` may be None", "name a tensor that is never None")
                return None
            return ShapeRule(tensor, like=value)
        if value.count(ELLIPSIS) > 1:
            place.error("`...` stands for all dimensions that are not written; write it once")
            return None
        errors = place.errors
        dims = tuple(
            self._dim(tensor, dim, scope, place.at(index)) for index, dim in enumerate(value)
        )
        return ShapeRule(tensor, dims=dims) if place.errors == errors else None

    def _dim(
        self, tensor: str, dim: Any, scope: OpScope, place: IssueCollector
    ) -> Expression | None:
        """Read a dimension; None for `...`, and after an error."""
        if dim == ELLIPSIS:
            return None
        if not isinstance(dim, (str, int)) or isinstance(dim, bool):
            place.error("a dimension is a name, a number or an expression")
            return None
        name = _dimension_name(dim)
        if name is not None and name not in scope.kinds and tensor in scope.optional:
            hint = "use it in the shape of a tensor that is never None, too"
            place.error(f"`{name}` is known only when `{tensor}` is given", hint)
            return None
        expression = scope.where_given({tensor}).expression(dim, place)
        if expression is not None and (expression.constant or 0) < 0:
            place.error("a dimension cannot be negative", "`...` stands for any dimensions")
        return expression

    def _judge_device(self, rules: Mapping[str, ShapeRule], let: Mapping[str, Expression]) -> None:
        """Report shapes that depend on a tensor's data or on the image, see `RUNTIME_QUERIES`."""
        for tensor, rule in rules.items():
            names = {name for dim in rule.dims if dim is not None for name in dim.names()}
            while added := {n for name in names & let.keys() for n in let[name].names()} - names:
                names |= added
            for name in sorted(name for name in names if name.partition("(")[0] in RUNTIME_QUERIES):
                self._place.at(tensor).error(f"a shape cannot depend on `{name}`")

    def _judge_batch(self, rules: Mapping[str, ShapeRule]) -> None:
        has_batch = any(None in rules[name].dims for name in self._required if name in rules)
        for tensor, rule in rules.items():
            if None in rule.dims and not has_batch:
                hint = "use `...` in the shape of a tensor that is never None"
                self._place.at(tensor).error("`...` is unknown", hint)

    def _judge_allocated(self) -> None:
        kinds = self._scope.kinds
        for tensor, kind in kinds.items():
            if kind in ("result", "temporary") and tensor not in {*self._table, *self._views}:
                example = self._required[0] if self._required else "x"
                what = "the result" if kind == "result" else "the temporary"
                hint = f'e.g. `shapes = {{ {tensor} = "{example}" }}`, or a list of dimensions'
                self._place.error(f"{what} `{tensor}` has no shape", hint)


def _dimension_name(dim: Any) -> str | None:
    """Name of a dimension that is just a name; None for other expressions."""
    if not isinstance(dim, str) or dim == ELLIPSIS:
        return None
    try:
        root = parse(dim).root
    except ExpressionError:
        return None
    return root.name if isinstance(root, Name) else None


def read_views(
    table: Mapping[str, ViewSection],
    returned: Sequence[str],
    scope: OpScope,
    place: IssueCollector,
) -> tuple[TensorView, ...]:
    """Read the views and add them to the scope; errors are added to `place`, the `views` key.

    Args:
        table: name -> its section.
        returned: results that may be None.
        scope: names of the op.
        place: place of the table.
    """
    views: dict[str, TensorView] = {}
    for name, section in table.items():
        where, errors = place.at(name), place.errors
        kind = scope.kinds.get(name)
        if name in returned:
            where.error(f"`{name}` may be None", "return a tensor, and the view in Python")
        elif not name.isidentifier():
            where.error(f"`{name}` cannot be used in an expression")
        known = [tensor for tensor in scope.tensors() if tensor not in table or tensor in views]
        if section.of not in known:
            hint = "describe it before" if section.of in table else one_of(section.of, known)
            where.at("of").error(f"`{section.of}` is not a tensor", hint)
        view = _view(name, section, scope, where)
        if kind != "result":
            scope.add(name, "view", where)
        if place.errors == errors and view is not None:
            views[name] = view
            # The tensor that owns the memory, also for a view of a view.
            scope.views[name] = scope.views.get(view.of, view.of)
            scope.shapes[name] = ShapeRule(name, dims=view.shape)
    _validate_results(views, scope, place)
    return tuple(views.values())


def _view(
    name: str, section: ViewSection, scope: OpScope, place: IssueCollector
) -> TensorView | None:
    root = scope.views.get(section.of, section.of)
    early = scope.before_allocation().where_given({root})

    def read(key: str, values: Sequence[str | int]) -> tuple[Expression, ...] | None:
        parts = [early.expression(text, place.at(key, at)) for at, text in enumerate(values)]
        for at, part in enumerate(parts):
            if part is not None and (part.constant or 0) < 0:
                place.at(key, at).error(f"`{part}` is negative")
        return tuple(part for part in parts if part is not None)

    strides = None if section.strides is None else read("strides", section.strides)
    if section.strides is not None and len(section.strides) != len(section.shape):
        place.at("strides").error(
            f"has {len(section.strides)} strides for {len(section.shape)} dimensions"
        )
    offset = early.expression(section.offset, place.at("offset"))
    shape = read("shape", section.shape)
    return TensorView(name, section.of, shape or (), strides, offset or parse(0))


def _validate_results(
    views: Mapping[str, TensorView], scope: OpScope, place: IssueCollector
) -> None:
    """Report results that would share memory: torch.compile assumes that results own theirs."""
    owners: dict[str, str] = {}
    for name in views:
        if scope.kinds.get(name) != "result":
            continue
        root = scope.views[name]
        if scope.kinds.get(root) != "temporary":
            message = f"the result `{name}` would share the memory of `{root}`, "
            message += "which the caller has" if root not in owners else "a result"
            place.at(name).error(message, "make it a view of a temporary, or copy it")
        elif root in owners:
            message = f"the results `{owners[root]}` and `{name}` would share memory"
            place.at(name).error(message, "copy one of them")
        owners[root] = name


def view_rules(
    views: Sequence[TensorView],
) -> tuple[tuple[ShapeRule, ...], tuple[DtypeRule, ...]]:
    """Shape and dtype rules of views."""
    shapes = tuple(ShapeRule(view.name, dims=view.shape) for view in views)
    return shapes, tuple(DtypeRule(view.name, like=view.of) for view in views)


def validate_sharing(
    calls: Sequence[AtenCall], results: Sequence[str], scope: OpScope, place: IssueCollector
) -> None:
    """Report results of ATen calls that may share memory with arguments or other results.

    Args:
        calls: ATen calls of the op, in order.
        results: names of the op's results.
        scope: names of the op.
        place: place of the op.
    """
    roots: dict[str, set[str]] = {}

    def roots_of(name: str) -> set[str]:
        root = scope.views.get(name, name)
        return roots.get(root, {root})

    for call in calls:
        shared = {root for name in call.aliases for root in roots_of(name)}
        for name in call.produced:
            # Several calls with conditions may produce one tensor.
            roots[name] = roots.get(name, set()) | (shared or {name})
    by_root: dict[str, str] = {}
    for result in (name for name in results if name in roots or name in scope.views):
        for root in sorted(roots_of(result)):
            owner = by_root.setdefault(root, result)
            is_argument = scope.kinds.get(root) == "tensor"
            if not is_argument and owner == result:
                continue
            producers = (c for c in calls if result in c.produced)
            where = IssueCollector(next((c.path for c in producers), place.path), place.issues)
            other = root if is_argument else owner
            hint = 'copy it: `aten = "clone"`'
            where.error(f"the result `{result}` may share the memory of `{other}`", hint)
