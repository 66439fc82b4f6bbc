"""Expressions as Python source that also takes Torch's symbolic integers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from kbuild.languages.expression.nodes import (
    Binary,
    Call,
    Choice,
    Compare,
    Logic,
    Match,
    Name,
    Negative,
    Node,
    Not,
    Number,
    Query,
)


def to_python(node: Node, names: Mapping[str, str]) -> str:  # noqa: PLR0911
    """A Python expression, in parentheses where it is not a single word or call.

    It needs `torch` in scope (for `torch.sym_min` and `torch.sym_max`) and does not check for 64
    bits: Torch's sizes are checked by Torch.

    Args:
        node: what to write.
        names: `key` of each name and question -> Python expression.
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
        case Binary() | Compare():
            return f"({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            return f"(1 if {write(node.left)} {node.operator} {write(node.right)} else 0)"
        case Choice():
            condition, then = write(node.condition), write(node.then)
            return f"({then} if {condition} else {write(node.otherwise)})"
        case Call():
            return _call(node, [write(part) for part in node.arguments])


def _call(node: Call, arguments: list[str]) -> str:
    match node.function:
        case "cdiv":
            return f"(-(-{arguments[0]} // {arguments[1]}))"
        case "next_pow2":
            return f"(1 << max(int({arguments[0]}) - 1, 0).bit_length())"
        case name:
            return reduce(lambda left, right: f"torch.sym_{name}({left}, {right})", arguments)
