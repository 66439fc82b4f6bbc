"""A parsed expression: evaluation in checked 64-bit integers.

Constant folding, queries about it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kbuild.ops.expression import codegen
from kbuild.ops.expression.nodes import (
    INT64_MAX,
    INT64_MIN,
    BinaryOp,
    Call,
    Compare,
    Conditional,
    EvaluationError,
    ExpressionError,
    Leaf,
    Logic,
    Match,
    Name,
    Negative,
    Node,
    Not,
    Number,
    Query,
    children,
    is_condition,
    known_given,
    leaves,
    transform,
    unguarded,
)
from kbuild.ops.expression.parser import parse_node

DIVISION_BY_ZERO = "division by zero"
OVERFLOW = "a value beyond 64 bits"

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(node: Node, values: Mapping[str, int]) -> int:  # noqa: PLR0911
    """The node's value; names and questions are looked up by their `key`.

    Raises:
        EvaluationError: a division by zero, or a value beyond 64 bits.
        KeyError: a name without a value.
    """
    match node:
        case Number():
            return node.value
        case Name() | Query() | Match():
            return _checked_int64(int(values[node.key]))
        case Negative():
            return _checked_int64(-evaluate(node.operand, values))
        case Not():
            return int(not evaluate(node.operand, values))
        case BinaryOp():
            left, right = evaluate(node.left, values), evaluate(node.right, values)
            return _checked_int64(_arithmetic(node.operator, left, right))
        case Compare():
            left, right = evaluate(node.left, values), evaluate(node.right, values)
            return int(_COMPARE[node.operator](left, right))
        case _:
            return _evaluate_lazily(node, values)


def _evaluate_lazily(node: Logic | Conditional | Call, values: Mapping[str, int]) -> int:
    match node:
        case Logic(operator="and"):
            return int(bool(evaluate(node.left, values) and evaluate(node.right, values)))
        case Logic():
            return int(bool(evaluate(node.left, values) or evaluate(node.right, values)))
        case Conditional():
            chosen = node.then if evaluate(node.condition, values) else node.otherwise
            return evaluate(chosen, values)
        case Call():
            return _checked_int64(
                _call_function(node, [evaluate(a, values) for a in node.arguments])
            )


def _arithmetic(symbol: str, left: int, right: int) -> int:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0:
        raise EvaluationError(DIVISION_BY_ZERO)
    return left // right if symbol == "//" else left % right


def _call_function(node: Call, arguments: list[int]) -> int:
    match node.function:
        case "min":
            return min(arguments)
        case "max":
            return max(arguments)
        case "next_pow2":
            return 1 << max(arguments[0] - 1, 0).bit_length()
    dividend, divisor = arguments
    if divisor == 0:
        raise EvaluationError(DIVISION_BY_ZERO)
    return -(-dividend // divisor)


def _checked_int64(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise EvaluationError(OVERFLOW)
    return value


def fold(node: Node, values: Mapping[str, int] | None = None) -> Node:
    """The node with `values` put in and every part of numbers alone evaluated.

    Only whole parts are evaluated: `a + 1 + 1` stays as it is, since `a + 1` may go beyond 64 bits.

    Raises:
        ExpressionError: a part never has a value, as `1 // 0`.
    """
    known = values or {}
    if isinstance(node, (Name, Query, Match)):
        if node.key in known:
            return Number(int(known[node.key]), node.column, boolean=is_condition(node))
        return node
    if isinstance(node, Conditional):
        return _fold_conditional(node, known)
    if isinstance(node, Logic):
        return _fold_logic(node, known)
    folded = _fold_children(node, known)
    parts = children(folded)
    if parts and all(isinstance(part, Number) for part in parts):
        return _evaluate_constant(folded)
    return folded


def _fold_conditional(node: Conditional, known: Mapping[str, int]) -> Node:
    """A side that is never evaluated may hold anything."""
    condition = fold(node.condition, known)
    if isinstance(condition, Number):
        return fold(node.then if condition.value else node.otherwise, known)
    return Conditional(condition, fold(node.then, known), fold(node.otherwise, known), node.column)


def _fold_logic(node: Logic, known: Mapping[str, int]) -> Node:
    """`0 and b` and `1 or b` are known; otherwise the right side decides."""
    left = fold(node.left, known)
    if isinstance(left, Number) and bool(left.value) == (node.operator == "or"):
        return Number(int(bool(left.value)), node.column, boolean=True)
    right = fold(node.right, known)
    if not isinstance(left, Number):
        return replace(node, left=left, right=right)
    return right if is_condition(right) else fold(Compare("!=", right, Number(0), node.column))


def _fold_children(node: Node, known: Mapping[str, int]) -> Node:
    match node:
        case Negative() | Not():
            return replace(node, operand=fold(node.operand, known))
        case BinaryOp() | Compare():
            return replace(node, left=fold(node.left, known), right=fold(node.right, known))
        case Call():
            return replace(node, arguments=tuple(fold(part, known) for part in node.arguments))
        case _:
            return node


def _evaluate_constant(node: Node) -> Number:
    try:
        return Number(evaluate(node, {}), node.column, boolean=is_condition(node))
    except EvaluationError as error:
        raise ExpressionError(f"always gives {error}", node.column) from error


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
        return known_given(self.root, True, roots)

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
        return evaluate(self.root, values)

    def bind(self, values: Mapping[str, int]) -> Expression:
        """The expression with these values put in; those that it does not use are ignored.

        Raises:
            ExpressionError: a part then never has a value.
        """
        return Expression(self.text, fold(self.root, values))

    def mapped(self, change: Callable[[Node], Node | None]) -> Expression:
        """The expression with parts replaced, see `nodes.mapped`."""
        return Expression(self.text, transform(self.root, change))

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
        return tuple(
            conjunct for side in sides for conjunct in Expression(self.text, side).conjuncts()
        )

    def to_cxx(self, names: Mapping[str, str], checked: str = "checked") -> str:
        """A C++ expression of type `int64_t` with the value of `evaluate`.

        Args:
            names: a C++ expression of type `int64_t` for each of `names()`.
            checked: the `kbuild::Arithmetic` in scope, see `arithmetic_header`; it throws where
                `evaluate` raises.
        """
        return codegen.to_cxx(self.root, names, checked)

    def to_python(self, names: Mapping[str, str]) -> str:
        """A Python expression; needs `torch` in scope.

        Args:
            names: a Python expression for each of `names()`.
        """
        return codegen.to_python(self.root, names)

    def __str__(self) -> str:
        return self.text


def parse(text: str | int) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: it is none, or never has a value.
    """
    if isinstance(text, int):
        text = str(int(text))
    return Expression(text, fold(parse_node(text)))


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
    text = " or ".join(f"({condition})" for condition in conditions)
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
    return Conditional(whether, _first_of(others, last), _first_of(second, otherwise))


def _halves(several: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
    middle = (len(several) + 1) // 2
    return several[:middle], several[middle:]
