"""Expressions as C++ and as Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbuild.languages.expression.nodes import (
    INT64_MIN,
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

_METHODS = {"+": "add", "-": "sub", "*": "mul", "//": "floor_div", "%": "floor_mod"}


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
        case Binary():
            return f"{checked}.{_METHODS[node.operator]}({write(node.left)}, {write(node.right)})"
        case Compare():
            return f"int64_t({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            symbol = "&&" if node.operator == "and" else "||"
            return f"int64_t({write(node.left)} != 0 {symbol} {write(node.right)} != 0)"
        case Choice():
            condition, then = write(node.condition), write(node.then)
            return f"({condition} != 0 ? {then} : {write(node.otherwise)})"
        case Call():
            return _call(node, [write(part) for part in node.arguments], checked)


def _call(node: Call, arguments: list[str], checked: str) -> str:
    if node.function in ("min", "max"):
        return f"std::{node.function}<int64_t>({{{', '.join(arguments)}}})"
    return f"{checked}.{node.function}({', '.join(arguments)})"
