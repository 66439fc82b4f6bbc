"""A read expression: its text, its parts, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbuild.languages.expression import cxx, evaluation, python
from kbuild.languages.expression.errors import ExpressionError
from kbuild.languages.expression.folding import fold
from kbuild.languages.expression.guards import known, unguarded
from kbuild.languages.expression.nodes import (
    Choice,
    Leaf,
    Logic,
    Name,
    Node,
    Not,
    Number,
    Query,
    is_condition,
    leaves,
    mapped,
)
from kbuild.languages.expression.parser import Parser

_T = TypeVar("_T")


@dataclass(frozen=True)
class Expression:
    """An integer expression of `build.toml`; equal to others with the same parts."""

    text: str = field(compare=False)
    """As it was written."""
    root: Node
    """Its parts; those made of numbers alone are evaluated."""

    def names(self) -> frozenset[str]:
        """Keys of everything that must be known to evaluate it: `N`, `size(x, 0)`."""
        return frozenset(leaf.key for leaf in leaves(self.root))

    def leaves(self) -> tuple[Leaf, ...]:
        """Names and questions in the order of the text, with their columns."""
        return tuple(sorted(leaves(self.root), key=lambda leaf: leaf.column))

    def unguarded(
        self, optional: Collection[str], let: Mapping[str, Expression]
    ) -> tuple[Name | Query, ...]:
        """What is asked of an argument without knowing that it is given.

        Args:
            optional: the arguments that may be None.
            let: what names stand for.
        """
        roots = {name: expression.root for name, expression in let.items()}
        return tuple(unguarded(self.root, frozenset(optional), roots))

    def given(self, let: Mapping[str, Expression]) -> frozenset[str]:
        """The arguments that are given whenever this condition holds."""
        roots = {name: expression.root for name, expression in let.items()}
        return known(self.root, True, roots)

    @property
    def is_condition(self) -> bool:
        """True when its value is 0 or 1 for sure."""
        return is_condition(self.root)

    @property
    def constant(self) -> int | None:
        """Its value when it depends on nothing."""
        return self.root.value if isinstance(self.root, Number) else None

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Its value.

        Args:
            values: a number for each of `names()`.

        Raises:
            EvaluationError: a division by zero, or a value beyond 64 bits.
            KeyError: a name has no value.
        """
        return evaluation.evaluate(self.root, values)

    def bind(self, values: Mapping[str, int]) -> Expression:
        """The expression with these values put in; those that it does not use are ignored.

        Raises:
            ExpressionError: a part then never has a value.
        """
        return Expression(self.text, fold(self.root, values))

    def mapped(self, change: Callable[[Node], Node | None]) -> Expression:
        """The expression with parts replaced, see `nodes.mapped`."""
        return Expression(self.text, mapped(self.root, change))

    def and_also(self, other: Expression | None) -> Expression:
        """The condition that both hold."""
        if other is None:
            return self
        return Expression(f"({self}) and ({other})", Logic("and", self.root, other.root))

    def negated(self) -> Expression:
        """The condition that this one does not hold."""
        return Expression(f"not ({self})", fold(Not(self.root)))

    def conjuncts(self) -> tuple[Expression, ...]:
        """The conditions that an `and` joins; itself when it is none.

        Where one of them is 0, the whole is 0 or, since what stands before it may be, an error.
        """
        if not (isinstance(self.root, Logic) and self.root.operator == "and"):
            return (self,)
        sides = (self.root.left, self.root.right)
        return tuple(one for side in sides for one in Expression(self.text, side).conjuncts())

    def to_cxx(self, names: Mapping[str, str], checked: str = "checked") -> str:
        """A C++ expression of type `int64_t` with the value of `evaluate`.

        Args:
            names: a C++ expression of type `int64_t` for each of `names()`.
            checked: the `kbuild::Arithmetic` in scope, see `arithmetic_header`; it throws where
                `evaluate` raises.
        """
        return cxx.to_cxx(self.root, names, checked)

    def to_python(self, names: Mapping[str, str]) -> str:
        """A Python expression; needs `torch` in scope.

        Args:
            names: a Python expression for each of `names()`.
        """
        return python.to_python(self.root, names)

    def __str__(self) -> str:
        return self.text


def parse(text: str | int) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: it is none, or never has a value.
    """
    if isinstance(text, int):
        text = str(int(text))
    return Expression(text, fold(Parser(text).whole()))


def parse_condition(text: str) -> Expression:
    """Read a predicate: a comparison, or several with `and`, `or`, `not`.

    Raises:
        ExpressionError: it is none.
    """
    expression = parse(text)
    if not expression.is_condition:
        hint = f"compare it: `{text} != 0`" if len(text) < 40 else "compare it"  # noqa: PLR2004
        raise ExpressionError("is a number, not a condition", 1, hint)
    return expression


def any_of(conditions: Sequence[Expression]) -> Expression:
    """The condition that one of them holds; they are asked in order.

    What reads an expression calls itself for each level, so many are not a row but a tree of them.
    """
    if len(conditions) == 1:
        return conditions[0]
    first, second = _halves(conditions)
    text = " or ".join(f"({one})" for one in conditions)
    return Expression(text, fold(Logic("or", any_of(first).root, any_of(second).root)))


def first_of(options: Sequence[tuple[Expression, Expression]], otherwise: Expression) -> Expression:
    """The value of the first condition that holds, as a tree like that of `any_of`.

    Args:
        options: conditions with their values.
        otherwise: the value where none holds.
    """
    text = " else ".join([*(f"({value}) if {when}" for when, value in options), f"({otherwise})"])
    return Expression(text, fold(_first_of(options, otherwise)))


def _first_of(options: Sequence[tuple[Expression, Expression]], otherwise: Expression) -> Node:
    if not options:
        return otherwise.root
    first, second = _halves(options)
    *others, (_, last) = first
    whether = any_of([when for when, _ in first]).root
    return Choice(whether, _first_of(others, last), _first_of(second, otherwise))


def _halves(several: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
    middle = (len(several) + 1) // 2
    return several[:middle], several[middle:]
