"""Shapes: what a call's tensors must look like, and what its results will."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbuild.config.suggest import one_of
from kbuild.languages.expression import Expression, ExpressionError, parse
from kbuild.languages.expression.nodes import RUNTIME, Name
from kbuild.languages.schema import Schema
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Scope
from kbuild.languages.spec.values import ShapeRule, Size

ELLIPSIS = "..."


class Shapes:
    """The `shapes` table of one op, read in two steps: `let` stands between them.

    First the names of dimensions are found, then every expression is read over all names.
    """

    def __init__(
        self, table: Mapping[str, Any], schema: Schema, scope: Scope, place: Place
    ) -> None:
        self._place = place
        self._scope = scope
        self._required = [
            argument.name for argument in schema.tensors if not argument.type.is_optional
        ]
        tensors = scope.tensors()
        self._table: dict[str, Any] = {}
        for tensor, value in table.items():
            if tensor not in tensors:
                place.at(tensor).error(f"`{tensor}` is not a tensor", one_of(tensor, tensors))
            else:
                self._table[tensor] = value

    def sizes(self) -> tuple[Size, ...]:
        """Names of dimensions, each with the first tensor that is always there and has it."""
        found: dict[str, Size] = {}
        for tensor in self._required:
            value = self._table.get(tensor)
            dims: list[Any] = value if isinstance(value, list) else []
            for position, dim in enumerate(dims):
                name = _name(dim)
                if name is None or name in found or name in self._scope.kinds:
                    continue
                behind = ELLIPSIS in dims[:position]
                axis = position - len(dims) if behind else position
                found[name] = Size(name, tensor, axis)
        for name in found:
            self._scope.add(name, "size", self._place)
        self._scope.shapes.update(self._ranks())
        return tuple(found.values())

    def _ranks(self) -> dict[str, ShapeRule]:
        """Rules with nothing but a rank, so that expressions about dimensions can be judged."""
        lists = {name: dims for name, dims in self._table.items() if isinstance(dims, list)}
        return {
            name: ShapeRule(name, dims=(parse(0),) * len(dims))
            for name, dims in lists.items()
            if ELLIPSIS not in dims
        }

    def rules(self, let: Mapping[str, Expression]) -> tuple[ShapeRule, ...]:
        """Every rule that is fine; errors for those that are not, and for results without one."""
        scope = self._scope.before_allocation()
        read = (self._rule(tensor, value, scope) for tensor, value in self._table.items())
        rules = {rule.tensor: rule for rule in read if rule is not None}
        self._judge_likes(rules)
        self._judge_device(rules, let)
        self._judge_batch(rules)
        self._judge_allocated()
        self._scope.shapes.update(rules)
        return tuple(rules.values())

    def _rule(self, tensor: str, value: Any, scope: Scope) -> ShapeRule | None:
        place = self._place.at(tensor)
        if isinstance(value, str):
            if value not in scope.tensors():
                hint = f"write the dimensions as a list, or one of {', '.join(scope.tensors())}"
                place.error(f"`{value}` is not a tensor argument", hint)
                return None
            if value in scope.optional:
                place.error(f"`{value}` may be None", "name a tensor that is always there")
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

    def _dim(self, tensor: str, dim: Any, scope: Scope, place: Place) -> Expression | None:
        """The expression; None for `...`, and after an error."""
        if dim == ELLIPSIS:
            return None
        if not isinstance(dim, (str, int)) or isinstance(dim, bool):
            place.error("a dimension is a name, a number or an expression")
            return None
        name = _name(dim)
        if name is not None and name not in scope.kinds and tensor in scope.optional:
            hint = "have a tensor that is always there name it, too"
            place.error(f"`{name}` is known only when `{tensor}` is given", hint)
            return None
        expression = scope.where_given({tensor}).expression(dim, place)
        if expression is not None and (expression.constant or 0) < 0:
            place.error("a dimension cannot be negative", "`...` stands for any dimensions")
        return expression

    def _judge_likes(self, rules: dict[str, ShapeRule]) -> None:
        for tensor, rule in list(rules.items()):
            seen = {tensor}
            end = rule
            while end.like in rules and end.like not in seen:
                seen.add(end.like)
                end = rules[end.like]
            if end.like in seen:
                self._place.at(tensor).error(f"`{tensor}` is shaped like itself")
                rules.pop(tensor)

    def _judge_device(self, rules: Mapping[str, ShapeRule], let: Mapping[str, Expression]) -> None:
        """Shapes are known without a device and without data."""
        for tensor, rule in rules.items():
            names = {name for dim in rule.dims if dim is not None for name in dim.names()}
            while found := {n for name in names & let.keys() for n in let[name].names()} - names:
                names |= found
            for name in sorted(name for name in names if name.partition("(")[0] in RUNTIME):
                self._place.at(tensor).error(f"a shape cannot depend on `{name}`")

    def _judge_batch(self, rules: Mapping[str, ShapeRule]) -> None:
        has_batch = any(None in rules[name].dims for name in self._required if name in rules)
        for tensor, rule in rules.items():
            if None in rule.dims and not has_batch:
                hint = "use `...` in the shape of a tensor that is always there"
                self._place.at(tensor).error("nothing says what `...` is", hint)

    def _judge_allocated(self) -> None:
        kinds = self._scope.kinds
        for tensor, kind in kinds.items():
            if kind in ("result", "temporary") and tensor not in self._table:
                example = self._required[0] if self._required else "x"
                what = "the result" if kind == "result" else "the temporary"
                hint = f'e.g. `shapes = {{ {tensor} = "{example}" }}`, or a list of dimensions'
                self._place.error(f"{what} `{tensor}` has no shape", hint)


def _name(dim: Any) -> str | None:
    """The name that a dimension is, None when it is anything else."""
    if not isinstance(dim, str) or dim == ELLIPSIS:
        return None
    try:
        root = parse(dim).root
    except ExpressionError:
        return None
    return root.name if isinstance(root, Name) else None
