"""The names of an op, and expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import Expression, ExpressionError, Query, parse, parse_condition
from kbuild.ops.expression.floating import FloatExpression, parse_float
from kbuild.ops.expression.nodes import LIST_QUERIES, Match
from kbuild.ops.model import ShapeRule
from kbuild.project.config.issue import IssueCollector, did_you_mean, listed, one_of

NameKind = Literal[
    "tensor", "result", "temporary", "view", "int", "float", "bool", "str", "dtype", "device",
    "list", "floats", "tensors", "size", "let", "constant", "word",
]  # fmt: skip
"""`list` is a list of integers or booleans, `floats` of floats, `tensors` of tensors; each of
these is a `tensor` with a name of its own, such as `xs[0]`. `word` is a constant that is no
integer."""
_TITLES: dict[NameKind, str] = {
    "tensor": "a tensor",
    "result": "a result",
    "temporary": "a temporary tensor",
    "view": "a view",
    "size": "a dimension",
    "let": "a name of `let`",
    "constant": "a constant",
    "word": "a constant",
}
_TENSORS: tuple[NameKind, ...] = ("tensor", "result", "temporary", "view")
_LISTS = ("list", "floats")
_ARGUMENTS = ("tensor", "int", "float", "bool", "str", "dtype", "device", *_LISTS)


@dataclass(frozen=True)
class OpScope:
    """Names and their kinds; each name has one meaning in an op."""

    kinds: dict[str, NameKind] = field(default_factory=dict)
    optional: Collection[str] = ()
    """Arguments that may be None."""
    shapes: dict[str, ShapeRule] = field(default_factory=dict)
    allocated: bool = True
    """True if results and temporaries exist when the expressions are evaluated."""
    is_open: bool = False
    """True if the kernel has constants that the section does not know."""
    let: dict[str, Expression] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    """Arguments that may be None in general, but are given where the expressions are evaluated."""
    views: dict[str, str] = field(default_factory=dict)
    """View -> the tensor whose memory it shares, which is not a view."""

    @property
    def loose(self) -> frozenset[str]:
        """Arguments that may be None here, and views of these."""
        loose = frozenset(self.optional) - self.given
        return loose | {view for view, root in self.views.items() if root in loose}

    def add(self, name: str, kind: NameKind, place: IssueCollector) -> bool:
        """Add a name; report an error at `place` if it has another meaning already."""
        if name.startswith("_") and kind not in ("constant", "word"):
            place.error(f"`{name}` starts with `_`", "kbuild's own names do")
            return False
        if name in self.kinds:
            taken = _TITLES.get(self.kinds[name], "an argument of the op")
            place.error(f"`{name}` is {taken} already", "rename one of them")
            return False
        self.kinds[name] = kind
        return True

    def tensors(self) -> list[str]:
        """Names of the tensors that expressions can query."""
        wanted = _TENSORS if self.allocated else _TENSORS[:1]
        return [name for name, kind in self.kinds.items() if kind in wanted]

    def items(self, name: str) -> list[str]:
        """Names of the tensors in a list."""
        return [tensor for tensor in self.kinds if tensor.startswith(f"{name}[")]

    def numbers(self) -> list[str]:
        """Names that are integers."""
        kinds = ("int", "bool", "size", "let", "constant")
        return [name for name, kind in self.kinds.items() if kind in kinds]

    def knowing(self, name: str, kind: NameKind) -> OpScope:
        """Return the scope with an additional name; an existing name keeps its kind."""
        return replace(self, kinds={name: kind, **self.kinds})

    def before_allocation(self) -> OpScope:
        """Return the scope for expressions that are evaluated before allocation."""
        return replace(self, allocated=False)

    def where(self, condition: Expression | None) -> OpScope:
        """Return the scope for calls that satisfy a condition."""
        if condition is None:
            return self
        return self.where_given(condition.given(self.let))

    def where_given(self, names: Collection[str]) -> OpScope:
        """Return the scope for calls in which these arguments are given."""
        return replace(self, given=self.given | frozenset(names))

    def inside(
        self,
        constants: Collection[str],
        place: IssueCollector,
        *,
        non_integers: Collection[str] = (),
        is_open: bool = False,
    ) -> OpScope:
        """Return the scope of a launch, with its constants."""
        scope = replace(self, kinds=dict(self.kinds), is_open=is_open)
        for name in constants:
            scope.add(name, "word" if name in non_integers else "constant", place)
        return scope

    def expression(self, text: str | int, place: IssueCollector) -> Expression | None:
        """Read an expression over these names; None after an error at `place`."""
        return self._read(text, parse, place)

    def condition(self, text: str, place: IssueCollector) -> Expression | None:
        """Read a condition over these names; None after an error at `place`."""
        # A boolean's name is a condition, which its syntax alone does not show.
        is_name = self._is_true_or_false(text.strip())
        return self._read(text, parse if is_name else parse_condition, place)

    def _read(
        self, text: Any, read: Callable[[Any], Expression], place: IssueCollector
    ) -> Expression | None:
        try:
            expression = read(text)
        except ExpressionError as error:
            place.error(f"`{text}`: {error.message} (column {error.column})", error.hint)
            return None
        return expression if self._known(expression, place) else None

    def is_condition(self, expression: Expression) -> bool:
        """True if the value is 0 or 1, as for a boolean argument."""
        return expression.is_condition or self._is_true_or_false(expression.text.strip())

    def floating(self, text: str, place: IssueCollector) -> FloatExpression | None:
        """Read a float expression; None for an integer expression, and after an error."""
        floats = {name for name, kind in self.kinds.items() if kind in ("float", "floats")}
        try:
            formula = parse_float(text, floats)
        except ExpressionError as error:
            place.error(f"`{text}`: {error.message} (column {error.column})", error.hint)
            return None
        if formula is None or not all(self._named(part, place) for part in formula.integers()):
            return None
        for name in formula.unguarded(self.loose, self.let):
            place.error(
                f"`{formula}`: `{name}` may be None", f"`... if {name} is not None else 0.0`"
            )
            return None
        return formula

    def _is_true_or_false(self, name: str) -> bool:
        """True for a boolean argument, or a condition of `let`."""
        meant = self.let.get(name)
        return self.is_condition(meant) if meant else self.kinds.get(name) == "bool"

    def _known(self, expression: Expression, place: IssueCollector) -> bool:
        return self._named(expression, place) and self._guarded(expression, place)

    def _named(self, expression: Expression, place: IssueCollector) -> bool:
        is_valid = True
        for leaf in expression.leaves():
            if isinstance(leaf, Query):
                problem = self._asked(leaf)
            elif isinstance(leaf, Match):
                problem = self._matched(leaf)
            else:
                problem = self._used(leaf.name)
            if problem is not None:
                message, hint = problem
                place.error(f"`{expression}`: {message} (column {leaf.column})", hint)
                is_valid = False
        return is_valid

    def _guarded(self, expression: Expression, place: IssueCollector) -> bool:
        """True if arguments that may be None are used only where they are given."""
        loose = expression.unguarded(self.loose, self.let)
        for leaf in loose:
            name = leaf.tensor if isinstance(leaf, Query) else leaf.name
            message = f"`{expression}`: `{name}` may be None (column {leaf.column})"
            is_tensor = self.kinds.get(name) in _TENSORS
            asked = f"has({name})" if is_tensor else f"{name} is not None"
            place.error(message, f"test it first: `{leaf.key} if {asked} else 0`")
        return not loose

    def _matched(self, leaf: Match) -> tuple[str, str] | None:
        """Problem of a comparison of an argument with a text or a float; None if there is none."""
        kind = self.kinds.get(leaf.subject)
        if leaf.tensor:
            known = [name for name, other_kind in self.kinds.items() if other_kind in _TENSORS]
            if kind not in _TENSORS:
                return f"`{leaf.tensor}` is not a tensor", one_of(leaf.tensor, known)
            if leaf.value not in DTYPES:
                return f"`{leaf.value}` is not a dtype", did_you_mean(str(leaf.value), DTYPES)
            return None
        wanted = ("str", "dtype") if isinstance(leaf.value, str) else ("float",)
        if kind not in wanted:
            title = "a string or a dtype" if isinstance(leaf.value, str) else "a float"
            known = [name for name, other_kind in self.kinds.items() if other_kind in wanted]
            message = f"`{leaf.name}` is not an argument of the op that is {title}"
            return message, _hint(leaf.name, known)
        if kind == "dtype" and leaf.value not in DTYPES:
            return f"`{leaf.value}` is not a dtype", did_you_mean(str(leaf.value), DTYPES)
        return None

    def _used(self, name: str) -> tuple[str, str] | None:  # noqa: PLR0911
        kind = self.kinds.get(name)
        if kind is None:
            if self.is_open:
                return None
            return f"`{name}` is unknown", _hint(name, self.numbers())
        if kind in _TENSORS:
            return f"`{name}` is a tensor", f"`numel({name})`, `size({name}, 0)`, ..."
        if kind == "float":
            return f"`{name}` is a float", "expressions use integers"
        if kind in ("str", "dtype"):
            what, value = ("a string", "fast") if kind == "str" else ("a dtype", "float16")
            return f"`{name}` is {what}", f"compare it: `{name} == '{value}'`"
        if kind in _LISTS:
            return f"`{name}` is a list", f"`{name}[0]`, `len({name})`"
        if kind == "tensors":
            return f"`{name}` is a list of tensors", f"`numel({name}[0])`, `size({name}[0], 0)`"
        if kind == "device":
            return f"`{name}` is a device", (
                "it must be the device of the tensors; expressions cannot use it"
            )
        if kind == "word":
            return f"`{name}` is not an integer", "expressions use integers"
        return None

    def _asked(self, query: Query) -> tuple[str, str] | None:
        kind = self.kinds.get(query.tensor)
        if not query.tensor or (query.function == "has" and kind is None and self.is_open):
            return None
        if kind == "tensors" or query.function in LIST_QUERIES:
            return self._of_tensors(query) if kind == "tensors" else self._listed(query, kind)
        there = (*_ARGUMENTS, "constant", "word", *(_TENSORS if self.allocated else ()))
        if query.function == "has" and kind in there:
            problem = f"`{query.tensor}` is never None", "`has` takes a `Tensor?`"
            return None if query.tensor in self.optional else problem
        if query.tensor not in self.tensors():
            if kind in _TENSORS:
                return f"`{query.tensor}` is not allocated yet", "use an argument"
            hint = _hint(query.tensor, self.tensors(), "tensors")
            return f"`{query.tensor}` is not a tensor", hint
        return self._axis(query)

    def _of_tensors(self, query: Query) -> tuple[str, str] | None:
        """Problem of a query about a list of tensors, or about its item as a number."""
        if query.function not in LIST_QUERIES:
            return self._used(query.tensor)
        count = len(self.items(query.tensor))
        if query.function == "len" or query.axis not in range(count):
            return f"`{query.tensor}` has {count} tensors", f"`numel({query.tensor}[0])`"
        return f"`{query.key}` is a tensor", f"`numel({query.key})`, `size({query.key}, 0)`"

    def _listed(self, query: Query, kind: NameKind | None) -> tuple[str, str] | None:
        if kind == "list" or (kind == "floats" and query.function == "len"):
            return None
        if kind == "floats":
            return f"`{query.key}` is a float", "expressions use integers"
        known = [name for name, name_kind in self.kinds.items() if name_kind in _LISTS]
        if kind in _TENSORS:
            return f"`{query.tensor}` is a tensor", f"`size({query.tensor}, 0)`"
        return f"`{query.tensor}` is not a list", _hint(query.tensor, known, "lists")

    def _axis(self, query: Query) -> tuple[str, str] | None:
        rule = self.shapes.get(query.tensor)
        rank = rule.rank if rule is not None else None
        if rank is None or query.axis is None or -rank <= query.axis < rank:
            return None
        return f"`{query.tensor}` has {rank} dimension{'s' if rank != 1 else ''}", ""


def _hint(name: str, known: Collection[str], title: str = "known") -> str:
    """Hint with the most similar name, else all known names."""
    return did_you_mean(name, known) or (f"{title}: {listed(known)}" if known else "")
