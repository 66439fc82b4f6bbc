"""The parts of an expression as frozen values. Columns are 1-based and do not count in `==`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Arithmetic = Literal["+", "-", "*", "//", "%"]
Comparison = Literal["==", "!=", "<", "<=", ">", ">="]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

FUNCTIONS: dict[str, tuple[int, int | None]] = {
    "cdiv": (2, 2),
    "min": (2, None),
    "max": (2, None),
    "next_pow2": (1, 1),
}
"""Function -> fewest and most arguments. `cdiv` rounds the quotient up; `next_pow2` is the smallest
power of two that is not below its argument, 1 for all below 1."""
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
"""Question about a tensor (or, without arguments, about the device) -> number of arguments.
`itemsize` is in bytes, `stride` in elements, `has` is 1 when what may be None is given,
`address` is where a tensor's first element lies, `capability` is 90 for CUDA's 9.0, and 0 for
GPUs of others."""
OF_LISTS = ("len", "item")
"""Questions about an argument that is a list: `len(pad)`, and `pad[0]`."""
RUNTIME = ("address", "capability")
"""Questions that no shape may depend on: of a tensor's data, and of which image runs. A fake tensor
has a device, so what `sm_count` is can be asked of that."""


@dataclass(frozen=True)
class Number:
    """An integer of 64 bits; True and False are 1 and 0."""

    value: int
    column: int = field(default=1, compare=False)
    boolean: bool = field(default=False, compare=False)
    """Written as True or False, or the result of a comparison."""


@dataclass(frozen=True)
class Name:
    """A value that the surroundings give."""

    name: str
    column: int = field(default=1, compare=False)

    @property
    def key(self) -> str:
        """What it is looked up by."""
        return self.name


@dataclass(frozen=True)
class Query:
    """A question about a tensor or about the device: `size(x, -1)`, `sm_count()`."""

    function: str
    tensor: str = ""
    """Or one of a list, `xs[0]`; an argument of another kind for `has` and `OF_LISTS`."""
    axis: int | None = None
    """Negative counts from the last dimension, or the last item."""
    column: int = field(default=1, compare=False)

    @property
    def key(self) -> str:
        """What it is looked up by: its own text."""
        if self.function == "item":
            return f"{self.tensor}[{self.axis}]"
        inner = [self.tensor] if self.tensor else []
        inner += [str(self.axis)] if self.axis is not None else []
        return f"{self.function}({', '.join(inner)})"


@dataclass(frozen=True)
class Match:
    """`mode == 'fast'`, `eps == 1e-06`: whether an argument that is no integer has this value."""

    name: str
    value: str | float
    column: int = field(default=1, compare=False)

    @property
    def key(self) -> str:
        """What it is looked up by."""
        return f"{self.name} == {self.value!r}"


@dataclass(frozen=True)
class Negative:
    """`-a`."""

    operand: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Not:
    """`not a`: 1 when `a` is 0, else 0."""

    operand: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Binary:
    """Arithmetic; `//` rounds down and `%` has the divisor's sign, as in Python."""

    operator: Arithmetic
    left: Node
    right: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Compare:
    """A comparison: 1 or 0."""

    operator: Comparison
    left: Node
    right: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Logic:
    """`and`, `or`: 1 or 0 (not one of the operands); the right side is evaluated when needed."""

    operator: Literal["and", "or"]
    left: Node
    right: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Choice:
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
    "Number | Name | Query | Match | Negative | Not | Binary | Compare | Logic | Choice | Call"
)


Leaf: TypeAlias = "Name | Query | Match"
"""What is looked up by its `key`."""


def children(node: Node) -> tuple[Node, ...]:
    """The parts that a node is made of, from left to right."""
    match node:
        case Negative() | Not():
            return (node.operand,)
        case Binary() | Compare() | Logic():
            return (node.left, node.right)
        case Choice():
            return (node.then, node.condition, node.otherwise)
        case Call():
            return node.arguments
        case _:
            return ()


def mapped(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The node with every part for which `change` has another one replaced, the largest first."""
    new = change(node)
    if new is not None:
        return new
    match node:
        case Negative() | Not():
            return replace(node, operand=mapped(node.operand, change))
        case Binary() | Compare() | Logic():
            left, right = mapped(node.left, change), mapped(node.right, change)
            return replace(node, left=left, right=right)
        case Choice():
            condition, then = mapped(node.condition, change), mapped(node.then, change)
            return Choice(condition, then, mapped(node.otherwise, change), node.column)
        case Call():
            parts = tuple(mapped(part, change) for part in node.arguments)
            return replace(node, arguments=parts)
        case _:
            return node


def leaves(node: Node) -> Iterator[Leaf]:
    """Every name and question, from left to right."""
    if isinstance(node, (Name, Query, Match)):
        yield node
    for child in children(node):
        yield from leaves(child)


def is_condition(node: Node) -> bool:
    """True when the value can only be 0 or 1."""
    match node:
        case Compare() | Logic() | Not() | Match():
            return True
        case Query():
            return node.function == "has"
        case Number():
            return node.boolean
        case Choice():
            return is_condition(node.then) and is_condition(node.otherwise)
        case _:
            return False
