"""The syntax tree of an expression, its errors, and which optional arguments a tree guards.

Nodes are frozen; columns are 1-based and do not count in `==`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TypeAlias


class ExpressionError(ValueError):
    """A text that is not an expression; has a column, and advice."""

    def __init__(self, message: str, column: int, hint: str = "") -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """1-based, in the expression's own text."""
        self.hint = hint


class EvaluationError(ValueError):
    """An expression has no value for these numbers; the C++ code refuses them as well."""


INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

FUNCTIONS: dict[str, tuple[int, int | None]] = {
    "cdiv": (2, 2),
    "min": (2, None),
    "max": (2, None),
    "next_pow2": (1, 1),
}
"""Function -> minimum and maximum of arguments (None: any number). `cdiv` rounds the quotient
up; `next_pow2` is the smallest power of two that is not below its argument, at least 1."""
QUERIES: dict[str, int] = {
    "numel": 1,
    "dim": 1,
    "itemsize": 1,
    "has": 1,
    "address": 1,
    "size": 2,
    "stride": 2,
    "sm_count": 0,
    "capability": 0,
}
"""Query about a tensor, or about the device -> number of arguments. `itemsize` is in bytes,
`stride` in elements; `has` is 1 if an optional argument is given; `address` is that of the first
element; `capability` is 90 for CUDA's 9.0, and 0 for other GPUs."""
LIST_QUERIES = ("len", "item")
"""Queries about a list: `len(pad)`, and `pad[0]`."""
RUNTIME_QUERIES = ("address", "capability")
"""Queries that no shape may depend on: about a tensor's data, and about the running image. A
fake tensor has a device, so `sm_count` is allowed."""


@dataclass(frozen=True)
class Number:
    """A 64-bit integer; True and False are 1 and 0."""

    value: int
    column: int = field(default=1, compare=False)
    boolean: bool = field(default=False, compare=False)
    """True if it was written as True or False, or is the result of a comparison."""


@dataclass(frozen=True)
class Name:
    """A named value of the context."""

    name: str
    column: int = field(default=1, compare=False)

    @property
    def key(self) -> str:
        """Key of its value."""
        return self.name


@dataclass(frozen=True)
class Query:
    """A query about a tensor or the device: `size(x, -1)`, `sm_count()`."""

    function: str
    tensor: str = ""
    """A tensor or an item of a list, `xs[0]`; for `has` and `LIST_QUERIES`, any argument."""
    axis: int | None = None
    """Negative values count from the last dimension, or the last item."""
    column: int = field(default=1, compare=False)

    @property
    def key(self) -> str:
        """Key of its value: its own text."""
        if self.function == "item":
            return f"{self.tensor}[{self.axis}]"
        inner = [self.tensor] if self.tensor else []
        inner += [str(self.axis)] if self.axis is not None else []
        return f"{self.function}({', '.join(inner)})"


@dataclass(frozen=True)
class Match:
    """A comparison of a non-integer argument with a value: `mode == 'fast'`, `eps > 1e-06`.

    `dtype(x) == 'float16'` has the name `dtype(x)`.
    """

    name: str
    value: str | float
    column: int = field(default=1, compare=False)
    operator: str = "=="
    """Comparison operator; texts and dtypes have only `==`."""

    def holds(self, value: object) -> bool:
        """True if it holds for a value of the argument; never for None."""
        if self.operator == "==":
            return value == self.value
        if not isinstance(value, float) or not isinstance(self.value, float):
            return False
        order = {"<": value < self.value, ">": value > self.value}
        return order[self.operator[0]] or ("=" in self.operator and value == self.value)

    @property
    def tensor(self) -> str:
        """The tensor whose dtype is compared; empty for an argument."""
        return self.name[6:-1] if self.name.startswith("dtype(") else ""

    @property
    def subject(self) -> str:
        """The argument or tensor that is compared."""
        return self.tensor or self.name

    @property
    def key(self) -> str:
        """Key of its value."""
        return f"{self.name} {self.operator} {self.value!r}"


@dataclass(frozen=True)
class _Unary:
    operand: Node
    column: int = field(default=1, compare=False)


class Negative(_Unary):
    """`-a`."""


class Not(_Unary):
    """`not a`: 1 when `a` is 0, else 0."""


@dataclass(frozen=True)
class _Binary:
    operator: str
    left: Node
    right: Node
    column: int = field(default=1, compare=False)


class BinaryOp(_Binary):
    """Arithmetic; `//` rounds down and `%` has the divisor's sign, as in Python."""


class Compare(_Binary):
    """`==`, `!=`, `<`, `<=`, `>`, `>=`: 1 or 0."""


class Logic(_Binary):
    """`and`, `or`: 1 or 0 (not one of the operands); the right side is evaluated when needed."""


@dataclass(frozen=True)
class Conditional:
    """`then if condition else otherwise`; only the chosen side is evaluated."""

    condition: Node
    then: Node
    otherwise: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Call:
    """One of `FUNCTIONS`."""

    function: str
    arguments: tuple[Node, ...]
    column: int = field(default=1, compare=False)


Node: TypeAlias = (
    "Number | Name | Query | Match | Negative | Not | BinaryOp | Compare | Logic"
    " | Conditional | Call"
)


Leaf: TypeAlias = "Name | Query | Match"
"""Nodes whose values are looked up by `key`."""


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node, from left to right."""
    match node:
        case Negative() | Not():
            return (node.operand,)
        case BinaryOp() | Compare() | Logic():
            return (node.left, node.right)
        case Conditional():
            return (node.then, node.condition, node.otherwise)
        case Call():
            return node.arguments
        case _:
            return ()


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with changed parts; the same object if none changes."""
    match node:
        case Negative() | Not():
            operand = change(node.operand)
            return node if operand is node.operand else replace(node, operand=operand)
        case BinaryOp() | Compare() | Logic():
            left, right = change(node.left), change(node.right)
            is_same = left is node.left and right is node.right
            return node if is_same else replace(node, left=left, right=right)
        case Conditional():
            condition, then = change(node.condition), change(node.then)
            otherwise = change(node.otherwise)
            parts = (node.condition, node.then, node.otherwise)
            is_same = all(map(is_, parts, (condition, then, otherwise)))
            return node if is_same else Conditional(condition, then, otherwise, node.column)
        case Call():
            arguments = tuple(map(change, node.arguments))
            is_same = all(map(is_, arguments, node.arguments))
            return node if is_same else replace(node, arguments=arguments)
        case _:
            return node


def transform(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The node with parts replaced wherever `change` returns one, outermost first."""
    new = change(node)
    return rebuilt(node, lambda part: transform(part, change)) if new is None else new


def leaves(node: Node) -> Iterator[Leaf]:
    """Yield every name and query, from left to right."""
    if isinstance(node, (Name, Query, Match)):
        yield node
    for child in children(node):
        yield from leaves(child)


def is_condition(node: Node) -> bool:
    """True if the value can only be 0 or 1."""
    match node:
        case Compare() | Logic() | Not() | Match():
            return True
        case Query():
            return node.function == "has"
        case Number():
            return node.boolean
        case Conditional():
            return is_condition(node.then) and is_condition(node.otherwise)
        case _:
            return False


ArgumentNames = frozenset[str]
_NOTHING: ArgumentNames = frozenset()


def unguarded(
    node: Node, optional: ArgumentNames, let: Mapping[str, Node]
) -> Iterator[Name | Query]:
    """Yield uses of `optional` arguments where they may be None.

    `let` has the expressions of names, so that a guard may have a name.
    """
    match node:
        case Name():
            if node.name in optional:
                yield node
        case Query():
            if node.function != "has" and node.tensor in optional:
                yield node
        case Conditional():
            yield from unguarded(node.condition, optional, let)
            yield from unguarded(node.then, optional - known_given(node.condition, True, let), let)
            yield from unguarded(
                node.otherwise, optional - known_given(node.condition, False, let), let
            )
        case Logic():
            yield from unguarded(node.left, optional, let)
            holds = node.operator == "and"
            yield from unguarded(node.right, optional - known_given(node.left, holds, let), let)
        case _:
            for child in children(node):
                yield from unguarded(child, optional, let)


def known_given(node: Node, holds: bool, let: Mapping[str, Node]) -> ArgumentNames:
    """Arguments that are certainly given if a condition holds, or if it does not."""
    match node:
        case Name(name) if name in let:
            return known_given(let[name], holds, let)
        case Query("has", name):
            return frozenset({name}) if holds else _NOTHING
        case Match():
            return frozenset({node.subject}) if holds else _NOTHING
        case Not(operand):
            return known_given(operand, not holds, let)
        case Logic(operator, left, right):
            sides = known_given(left, holds, let), known_given(right, holds, let)
            # A true `and` decides both of its sides, and so does a false `or`.
            both = (operator == "and") == holds
            return sides[0] | sides[1] if both else sides[0] & sides[1]
        case _:
            return _NOTHING
