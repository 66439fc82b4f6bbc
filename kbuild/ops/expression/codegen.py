"""Writes an expression as C++ (checked 64-bit arithmetic) and as Python (symbolic integers)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from kbuild.ops.expression.nodes import (
    INT64_MIN,
    BinaryOp,
    Call,
    Compare,
    Conditional,
    Logic,
    Match,
    Name,
    Negative,
    Node,
    Not,
    Number,
    Query,
)

_CXX_METHODS = {"+": "add", "-": "sub", "*": "mul", "//": "floor_div", "%": "floor_mod"}


def arithmetic_header() -> str:
    """The C++ header that code of `to_cxx` includes; it needs the standard library alone."""
    return Path(__file__).with_name("arithmetic.h").read_text("utf-8")


def to_cxx(node: Node, names: Mapping[str, str], checked: str) -> str:  # noqa: C901, PLR0911
    """A C++ expression of type `int64_t`.

    Args:
        node: what to write.
        names: `key` of each name and question -> C++ expression of type `int64_t`.
        checked: name of a `kbuild::Arithmetic` in scope; it raises the errors.
    """

    def write(part: Node) -> str:
        return to_cxx(part, names, checked)

    match node:
        case Number():
            return "INT64_MIN" if node.value == INT64_MIN else f"INT64_C({node.value})"
        case Name() | Query() | Match():
            return names[node.key]
        case Negative():
            return f"{checked}.sub(0, {write(node.operand)})"
        case Not():
            return f"int64_t({write(node.operand)} == 0)"
        case BinaryOp():
            return (
                f"{checked}.{_CXX_METHODS[node.operator]}({write(node.left)}, {write(node.right)})"
            )
        case Compare():
            return f"int64_t({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            symbol = "&&" if node.operator == "and" else "||"
            return f"int64_t({write(node.left)} != 0 {symbol} {write(node.right)} != 0)"
        case Conditional():
            condition, then = write(node.condition), write(node.then)
            return f"({condition} != 0 ? {then} : {write(node.otherwise)})"
        case Call():
            arguments = [write(part) for part in node.arguments]
            if node.function in ("min", "max"):
                return f"std::{node.function}<int64_t>({{{', '.join(arguments)}}})"
            return f"{checked}.{node.function}({', '.join(arguments)})"


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
        case BinaryOp() | Compare():
            return f"({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            return f"(1 if {write(node.left)} {node.operator} {write(node.right)} else 0)"
        case Conditional():
            condition, then = write(node.condition), write(node.then)
            return f"({then} if {condition} else {write(node.otherwise)})"
        case Call():
            return _python_call(node, [write(part) for part in node.arguments])


def _python_call(node: Call, arguments: list[str]) -> str:
    match node.function:
        case "cdiv":
            return f"(-(-{arguments[0]} // {arguments[1]}))"
        case "next_pow2":
            return f"(1 << max(int({arguments[0]}) - 1, 0).bit_length())"
        case name:
            return reduce(lambda left, right: f"torch.sym_{name}({left}, {right})", arguments)
