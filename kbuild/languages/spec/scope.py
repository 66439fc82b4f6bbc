"""The names of an op, and expressions over them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from kbuild.config.suggest import did_you_mean, listed
from kbuild.languages.expression import (
    Expression,
    ExpressionError,
    Query,
    parse,
    parse_condition,
)
from kbuild.languages.expression.nodes import OF_LISTS, Match
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import ShapeRule

Kind = Literal[
    "tensor", "result", "temporary", "int", "float", "bool", "str", "dtype", "device", "list",
    "floats", "tensors", "size", "let", "constant", "word",
]  # fmt: skip
"""`list` is one of integers or booleans, `floats` one of floats, `tensors` one of tensors, each of
which is a `tensor` by its own name: `xs[0]`."""
_TITLES: dict[Kind, str] = {
    "tensor": "a tensor",
    "result": "a result",
    "temporary": "a temporary tensor",
    "int": "an argument of the op",
    "float": "an argument of the op",
    "bool": "an argument of the op",
    **dict.fromkeys(
        ("str", "dtype", "device", "list", "floats", "tensors"), "an argument of the op"
    ),
    "size": "a dimension",
    "let": "a name of `let`",
    "constant": "a constant",
    "word": "a constant",
}
_TENSORS = ("tensor", "result", "temporary")
_LISTS = ("list", "floats")
_ARGUMENTS = ("tensor", "int", "float", "bool", "str", "dtype", "device", *_LISTS)


@dataclass(frozen=True)
class Scope:
    """Names with their kinds. Each name means one thing in an op."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    optional: Collection[str] = ()
    """Arguments that may be None."""
    shapes: dict[str, ShapeRule] = field(default_factory=dict)
    allocated: bool = True
    """Whether results and temporaries exist when the expressions are evaluated."""
    is_open: bool = False
    """Whether there are constants that only the kernel knows."""
    let: dict[str, Expression] = field(default_factory=dict)
    """What the names of `let` stand for."""
    given: frozenset[str] = frozenset()
    """Arguments that may be None, and are given for sure."""

    def add(self, name: str, kind: Kind, place: Place) -> bool:
        """Enter a name; an error at `place` when it means something else already."""
        if name.startswith("_") and kind not in ("constant", "word"):
            place.error(f"`{name}` starts with `_`", "kbuild's own names do")
            return False
        if name in self.kinds:
            taken = _TITLES[self.kinds[name]]
            place.error(f"`{name}` is {taken} already", "give one of them another name")
            return False
        self.kinds[name] = kind
        return True

    def tensors(self) -> list[str]:
        """Every tensor that can be asked about."""
        wanted = _TENSORS if self.allocated else _TENSORS[:1]
        return [name for name, kind in self.kinds.items() if kind in wanted]

    def items(self, name: str) -> list[str]:
        """The tensors of a list of them."""
        return [one for one in self.kinds if one.startswith(f"{name}[")]

    def numbers(self) -> list[str]:
        """Every name that is an integer."""
        kinds = ("int", "bool", "size", "let", "constant")
        return [name for name, kind in self.kinds.items() if kind in kinds]

    def knowing(self, name: str, kind: Kind) -> Scope:
        """The scope with one name more; one that means something already keeps its meaning."""
        return replace(self, kinds={name: kind, **self.kinds})

    def before_allocation(self) -> Scope:
        """The same names while only the call's arguments exist."""
        return replace(self, allocated=False)

    def where(self, condition: Expression | None) -> Scope:
        """The same names in calls that meet a condition."""
        if condition is None:
            return self
        return self.where_given(condition.given(self.let))

    def where_given(self, names: Collection[str]) -> Scope:
        """The same names in calls in which these arguments are given."""
        return replace(self, given=self.given | frozenset(names))

    def inside(
        self,
        constants: Collection[str],
        place: Place,
        *,
        words: Collection[str] = (),
        is_open: bool = False,
    ) -> Scope:
        """The scope of one launch.

        Args:
            constants: those that it adds.
            place: where they are written.
            words: those of them that are no integers.
            is_open: whether the kernel has constants that are not known yet.
        """
        scope = replace(self, kinds=dict(self.kinds), is_open=is_open)
        for name in constants:
            scope.add(name, "word" if name in words else "constant", place)
        return scope

    def expression(self, text: str | int, place: Place) -> Expression | None:
        """Read an expression over these names; None after an error at `place`."""
        try:
            found = parse(text)
        except ExpressionError as error:
            place.error(_said(text, error), error.hint)
            return None
        return found if self._known(found, place) else None

    def condition(self, text: str, place: Place) -> Expression | None:
        """Read a predicate; None after an error at `place`."""
        if self._is_true_or_false(text.strip()):
            return self.expression(text, place)
        try:
            found = parse_condition(text)
        except ExpressionError as error:
            place.error(_said(text, error), error.hint)
            return None
        return found if self._known(found, place) else None

    def is_condition(self, expression: Expression) -> bool:
        """True when its value is 0 or 1, as that of a boolean argument is."""
        return expression.is_condition or self._is_true_or_false(expression.text.strip())

    def _is_true_or_false(self, name: str) -> bool:
        """Whether it names a boolean argument, or a condition of `let`."""
        meant = self.let.get(name)
        return self.is_condition(meant) if meant else self.kinds.get(name) == "bool"

    def _known(self, found: Expression, place: Place) -> bool:
        fine = True
        for leaf in found.leaves():
            match leaf:
                case Query():
                    problem = self._asked(leaf)
                case Match():
                    problem = self._matched(leaf)
                case _:
                    problem = self._used(leaf.name)
            if problem is not None:
                message, hint = problem
                place.error(f"`{found}`: {message} (column {leaf.column})", hint)
                fine = False
        return fine and self._guarded(found, place)

    def _guarded(self, found: Expression, place: Place) -> bool:
        """Whether what may be None is asked for only where it is given."""
        loose = found.unguarded(set(self.optional) - self.given, self.let)
        for leaf in loose:
            name = leaf.tensor if isinstance(leaf, Query) else leaf.name
            message = f"`{found}`: `{name}` may be None (column {leaf.column})"
            is_tensor = self.kinds.get(name) in _TENSORS
            asked = f"has({name})" if is_tensor else f"{name} is not None"
            place.error(message, f"ask first: `{leaf.key} if {asked} else 0`")
        return not loose

    def _matched(self, leaf: Match) -> tuple[str, str] | None:
        """What is wrong with comparing an argument with a text or a fraction."""
        kind = self.kinds.get(leaf.name)
        wanted = ("str", "dtype") if isinstance(leaf.value, str) else ("float",)
        if kind not in wanted:
            words = "a string or a dtype" if isinstance(leaf.value, str) else "a float"
            known = [name for name, one in self.kinds.items() if one in wanted]
            hint = did_you_mean(leaf.name, known) or (f"known: {listed(known)}" if known else "")
            return f"`{leaf.name}` is no argument of the op that is {words}", hint
        if kind == "dtype" and leaf.value not in DTYPES:
            return f"`{leaf.value}` is not a dtype", did_you_mean(str(leaf.value), DTYPES)
        return None

    def _used(self, name: str) -> tuple[str, str] | None:  # noqa: PLR0911
        kind = self.kinds.get(name)
        if kind is None:
            if self.is_open:
                return None
            known = self.numbers()
            hint = did_you_mean(name, known) or (f"known: {listed(known)}" if known else "")
            return f"`{name}` is unknown", hint
        if kind in _TENSORS:
            return f"`{name}` is a tensor", f"`numel({name})`, `size({name}, 0)`, ..."
        if kind == "float":
            return f"`{name}` is a float", "expressions are made of integers"
        if kind in ("str", "dtype"):
            what, value = ("a string", "fast") if kind == "str" else ("a dtype", "float16")
            return f"`{name}` is {what}", f"compare it: `{name} == '{value}'`"
        if kind in _LISTS:
            return f"`{name}` is a list", f"`{name}[0]`, `len({name})`"
        if kind == "tensors":
            return f"`{name}` is a list of tensors", f"`numel({name}[0])`, `size({name}[0], 0)`"
        if kind == "device":
            return f"`{name}` is a device", "it is checked to be that of the tensors, no more"
        if kind == "word":
            return f"`{name}` is not an integer", "expressions are made of integers"
        return None

    def _asked(self, query: Query) -> tuple[str, str] | None:
        kind = self.kinds.get(query.tensor)
        if not query.tensor or (query.function == "has" and kind is None and self.is_open):
            return None
        if kind == "tensors" or query.function in OF_LISTS:
            return self._of_tensors(query) if kind == "tensors" else self._listed(query, kind)
        there = (*_ARGUMENTS, "constant", "word", *(_TENSORS if self.allocated else ()))
        if query.function == "has" and kind in there:
            words = f"`{query.tensor}` is always there", "`has` asks about a `Tensor?`"
            return None if query.tensor in self.optional else words
        if query.tensor not in self.tensors():
            if kind in _TENSORS:
                return f"`{query.tensor}` is not allocated yet", "ask about the arguments"
            known = self.tensors()
            hint = did_you_mean(query.tensor, known) or f"tensors: {listed(known)}"
            return f"`{query.tensor}` is not a tensor", hint
        return self._axis(query)

    def _of_tensors(self, query: Query) -> tuple[str, str] | None:
        """A question about a list of tensors, or about one of its items as if it were a number."""
        if query.function not in OF_LISTS:
            return self._used(query.tensor)
        count = len(self.items(query.tensor))
        if query.function == "len" or query.axis not in range(count):
            return f"`{query.tensor}` has {count} tensors", f"`numel({query.tensor}[0])`"
        return f"`{query.key}` is a tensor", f"`numel({query.key})`, `size({query.key}, 0)`"

    def _listed(self, query: Query, kind: Kind | None) -> tuple[str, str] | None:
        if kind == "list" or (kind == "floats" and query.function == "len"):
            return None
        if kind == "floats":
            return f"`{query.key}` is a float", "expressions are made of integers"
        known = [name for name, one in self.kinds.items() if one in _LISTS]
        if kind in _TENSORS:
            return f"`{query.tensor}` is a tensor", f"`size({query.tensor}, 0)`"
        hint = did_you_mean(query.tensor, known) or (f"lists: {listed(known)}" if known else "")
        return f"`{query.tensor}` is not a list", hint

    def _axis(self, query: Query) -> tuple[str, str] | None:
        rule = self.shapes.get(query.tensor)
        rank = rule.rank if rule is not None else None
        if rank is None or query.axis is None or -rank <= query.axis < rank:
            return None
        return f"`{query.tensor}` has {rank} dimension{'s' if rank != 1 else ''}", ""


def _said(text: str | int, error: ExpressionError) -> str:
    return f"`{text}`: {error.message} (column {error.column})"
