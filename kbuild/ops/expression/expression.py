"""A parsed expression: evaluation in checked 64-bit integers, and code in C++ and Python."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TypeVar

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
    rebuilt,
    transform,
    unguarded,
)
from kbuild.ops.expression.parser import parse_node

DIVISION_BY_ZERO = "division by zero"
OVERFLOW = "a value beyond 64 bits"
_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "next_pow2": lambda value: 1 << max(value - 1, 0).bit_length(),
    "cdiv": lambda dividend, divisor: -(-dividend // divisor),
}
_CXX_FUNCTIONS = {"+": "add", "-": "sub", "*": "mul", "//": "floor_div", "%": "floor_mod"}


def evaluate(node: Node, values: Mapping[str, int]) -> int:  # noqa: C901
    """Return the node's value; names and queries are looked up by their `key`.

    Raises:
        EvaluationError: a division by zero, or a value beyond 64 bits.
        KeyError: a name without a value.
    """

    def of(part: Node) -> int:
        return evaluate(part, values)

    try:
        match node:
            case Number():
                value = node.value
            case Name() | Query() | Match():
                value = int(values[node.key])
            case Negative():
                value = -of(node.operand)
            case Not():
                value = int(not of(node.operand))
            case BinaryOp() | Compare():
                value = int(_OPERATORS[node.operator](of(node.left), of(node.right)))
            case Logic("and"):
                # Python's `and` would give an operand; C++ gives 0 or 1.
                value = int(bool(of(node.left) and of(node.right)))
            case Logic():
                value = int(bool(of(node.left) or of(node.right)))
            case Conditional():
                value = of(node.then if of(node.condition) else node.otherwise)
            case _:
                value = _FUNCTIONS[node.function](*map(of, node.arguments))
    except ZeroDivisionError:
        raise EvaluationError(DIVISION_BY_ZERO) from None
    if not INT64_MIN <= value <= INT64_MAX:
        raise EvaluationError(OVERFLOW)
    return value


def arithmetic_header() -> str:
    """Text of the C++ header for code of `to_cxx`; it includes only the standard library."""
    return Path(__file__).with_name("arithmetic.h").read_text("utf-8")


def _cxx_call(function: str, arguments: Sequence[str]) -> str:
    if function in ("min", "max"):
        return f"std::{function}<int64_t>({{{', '.join(arguments)}}})"
    return f"checked.{function}({', '.join(arguments)})"


def to_cxx(  # noqa: C901, PLR0911
    node: Node,
    names: Mapping[str, str],
    call: Callable[[str, Sequence[str]], str] = _cxx_call,
    cast: str = "int64_t",
) -> str:
    """Return a C or C++ expression of type `int64_t` with the value of `evaluate`.

    Names and queries are the expressions in `names`, by their `key`. `call` writes a function
    that checks its result: one of `FUNCTIONS`, `add`, `sub`, `mul`, `floor_div` or `floor_mod`.
    In C++ that is a method of the `kbuild::Arithmetic` called `checked`, which has to be in scope.
    """

    def write(part: Node) -> str:
        return to_cxx(part, names, call, cast)

    match node:
        case Number():
            return cxx_int64(node.value)
        case Name() | Query() | Match():
            return names[node.key]
        case Negative():
            # By a subtraction, which reports that the smallest integer has no negative.
            return call("sub", ("0", write(node.operand)))
        case Not():
            return f"{cast}({write(node.operand)} == 0)"
        case BinaryOp():
            return call(_CXX_FUNCTIONS[node.operator], (write(node.left), write(node.right)))
        case Compare():
            return f"{cast}({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            symbol = "&&" if node.operator == "and" else "||"
            return f"{cast}({write(node.left)} != 0 {symbol} {write(node.right)} != 0)"
        case Conditional():
            condition, then = write(node.condition), write(node.then)
            return f"({condition} != 0 ? {then} : {write(node.otherwise)})"
        case Call():
            return call(node.function, [write(part) for part in node.arguments])


def cxx_int64(value: int) -> str:
    """Literal of a 64-bit integer in C and C++."""
    # The literal of the smallest integer would be the negation of one that does not fit.
    return "INT64_MIN" if value == INT64_MIN else f"INT64_C({value})"


def to_python(node: Node, names: Mapping[str, str]) -> str:  # noqa: PLR0911
    """Return a Python expression, in parentheses unless it is a single word or call.

    It needs `torch` in scope (for `torch.sym_min` and `torch.sym_max`) and does not check for 64
    bits: Torch's sizes are checked by Torch. `names` are Python expressions by `key`.
    """

    def write(part: Node) -> str:
        return to_python(part, names)

    match node:
        case Number():
            return str(node.value) if node.value >= 0 else f"({node.value})"
        case Name() | Query() | Match():
            return names[node.key]
        case Negative():
            return f"(-{write(node.operand)})"
        case Not():
            return f"(0 if {write(node.operand)} else 1)"
        case BinaryOp() | Compare():
            return f"({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            return f"(1 if {write(node.left)} {node.operator} {write(node.right)} else 0)"
        case Conditional():
            condition, then = write(node.condition), write(node.then)
            return f"({then} if {condition} else {write(node.otherwise)})"
        case Call():
            return _python_call(node.function, [write(part) for part in node.arguments])


def _python_call(function: str, arguments: Sequence[str]) -> str:
    if function == "cdiv":
        return f"(-(-{arguments[0]} // {arguments[1]}))"
    if function == "next_pow2":
        return f"(1 << max(int({arguments[0]}) - 1, 0).bit_length())"
    # Torch's two functions take exactly two arguments.
    return reduce(lambda left, right: f"torch.sym_{function}({left}, {right})", arguments)


def fold(node: Node, values: Mapping[str, int] | None = None) -> Node:
    """Insert `values` and evaluate every part that consists of numbers only.

    Only whole parts are evaluated: `a + 1 + 1` stays as it is, since `a + 1` may go beyond 64 bits.

    Raises:
        ExpressionError: a part never has a value, such as `1 // 0`.
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
    folded = rebuilt(node, lambda part: fold(part, known))
    if not (parts := children(folded)) or not all(isinstance(part, Number) for part in parts):
        return folded
    try:
        return Number(evaluate(folded, {}), node.column, boolean=is_condition(folded))
    except EvaluationError as error:
        raise ExpressionError(f"always gives {error}", node.column) from error


def _fold_conditional(node: Conditional, known: Mapping[str, int]) -> Node:
    """Fold a conditional; a side that is never evaluated may have no value."""
    condition = fold(node.condition, known)
    if isinstance(condition, Number):
        return fold(node.then if condition.value else node.otherwise, known)
    return Conditional(condition, fold(node.then, known), fold(node.otherwise, known), node.column)


def _fold_logic(node: Logic, known: Mapping[str, int]) -> Node:
    """Fold `and` or `or`: a known left side may decide; otherwise the right side does."""
    left = fold(node.left, known)
    if isinstance(left, Number) and bool(left.value) == (node.operator == "or"):
        return Number(int(bool(left.value)), node.column, boolean=True)
    right = fold(node.right, known)
    if not isinstance(left, Number):
        return replace(node, left=left, right=right)
    # `and` and `or` give 0 or 1, even if the side that decides is another number.
    return right if is_condition(right) else fold(Compare("!=", right, Number(0), node.column))


_T = TypeVar("_T")


@dataclass(frozen=True)
class Expression:
    """An integer expression of `build.toml`; equal if the syntax trees are equal."""

    text: str = field(compare=False)
    root: Node
    """Syntax tree, in which parts that consist of numbers only are evaluated."""

    def names(self) -> frozenset[str]:
        """Keys of all values that its evaluation needs, such as `N`, `size(x, 0)`."""
        return frozenset(leaf.key for leaf in leaves(self.root))

    def leaves(self) -> tuple[Leaf, ...]:
        """Names and queries in the order of the text."""
        return tuple(sorted(leaves(self.root), key=lambda leaf: leaf.column))

    def unguarded(
        self, optional: Collection[str], let: Mapping[str, Expression]
    ) -> tuple[Name | Query, ...]:
        """Return uses of `optional` arguments where they may be None.

        `let` has the expressions of names.
        """
        roots = {name: expression.root for name, expression in let.items()}
        return tuple(unguarded(self.root, frozenset(optional), roots))

    def given(self, let: Mapping[str, Expression]) -> frozenset[str]:
        """Arguments that are given whenever this condition holds."""
        roots = {name: expression.root for name, expression in let.items()}
        return known_given(self.root, True, roots)

    @property
    def is_condition(self) -> bool:
        """True if its value can only be 0 or 1."""
        return is_condition(self.root)

    @property
    def constant(self) -> int | None:
        """The value, if it is the same in every call; else None."""
        return self.root.value if isinstance(self.root, Number) else None

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return its value, given a number for each of `names()`.

        Raises:
            EvaluationError: a division by zero, or a value beyond 64 bits.
            KeyError: a name has no value.
        """
        return evaluate(self.root, values)

    def bind(self, values: Mapping[str, int]) -> Expression:
        """Return the expression with these values inserted; those that it does not use are ignored.

        Raises:
            ExpressionError: a part then has no value.
        """
        return Expression(self.text, fold(self.root, values))

    def mapped(self, change: Callable[[Node], Node | None]) -> Expression:
        """Return the expression with parts replaced, see `nodes.transform`."""
        return Expression(self.text, transform(self.root, change))

    def and_also(self, other: Expression | None) -> Expression:
        """Return the condition that both hold."""
        if other is None:
            return self
        return Expression(f"({self}) and ({other})", Logic("and", self.root, other.root))

    def negated(self) -> Expression:
        """Return the negated condition."""
        return Expression(f"not ({self})", fold(Not(self.root)))

    def conjuncts(self) -> tuple[Expression, ...]:
        """Return the conditions that `and` joins; just this one if it has no `and`.

        If one of them is 0, the whole is 0 or, because of a condition before it, an error.
        """
        if not (isinstance(self.root, Logic) and self.root.operator == "and"):
            return (self,)
        sides = (self.root.left, self.root.right)
        return tuple(
            conjunct for side in sides for conjunct in Expression(self.text, side).conjuncts()
        )

    def to_cxx(self, names: Mapping[str, str]) -> str:
        """See `to_cxx`."""
        return to_cxx(self.root, names)

    def to_python(self, names: Mapping[str, str]) -> str:
        """See `to_python`."""
        return to_python(self.root, names)

    def __str__(self) -> str:
        return self.text


def parse(text: str | int) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: it is not an expression, or never has a value.
    """
    if isinstance(text, int):
        text = str(int(text))
    return Expression(text, fold(parse_node(text)))


def parse_condition(text: str) -> Expression:
    """Parse a condition: a comparison, or several with `and`, `or`, `not`.

    Raises:
        ExpressionError: it is not a condition.
    """
    expression = parse(text)
    if not expression.is_condition:
        hint = f"compare it: `{text} != 0`" if len(text) < 40 else "compare it"  # noqa: PLR2004
        raise ExpressionError("is a number, not a condition", 1, hint)
    return expression


def any_of(conditions: Sequence[Expression]) -> Expression:
    """Return the condition that one of them holds; they are evaluated in order.

    The `or`s form a balanced tree, since functions over expressions are recursive.
    """
    if len(conditions) == 1:
        return conditions[0]
    first, second = _halves(conditions)
    text = " or ".join(f"({condition})" for condition in conditions)
    return Expression(text, fold(Logic("or", any_of(first).root, any_of(second).root)))


def first_of(options: Sequence[tuple[Expression, Expression]], otherwise: Expression) -> Expression:
    """Return the value of the first condition that holds, as a tree like that of `any_of`."""
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
