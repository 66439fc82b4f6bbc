"""The grid as C: checked 64-bit arithmetic over the arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kbuild.config.suggest import did_you_mean, listed
from kbuild.errors import UsageError
from kbuild.languages.export.signature import Signature
from kbuild.languages.expression import Expression, ExpressionError, Query, parse
from kbuild.languages.expression.nodes import (
    INT64_MIN,
    Binary,
    Call,
    Choice,
    Compare,
    Leaf,
    Logic,
    Match,
    Name,
    Negative,
    Node,
    Not,
    Number,
)

_AXES = 3
_DIVISION = re.compile(r"(?<!/)/(?!/)")
_FUNCTIONS = {"+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod"}


def read_grid(text: str, signature: Signature) -> tuple[Expression, ...]:
    """One to three expressions over arguments and constants, separated by commas.

    C's `/` is read as `//`: both round alike where nothing is negative, and a negative grid is
    refused at run time.

    Raises:
        UsageError: it is none, or uses what is no integer of the kernel.
    """
    axes = _split(text)
    if not 0 < len(axes) <= _AXES or not all(axes):
        raise UsageError(
            f"the grid `{text}` has {len(axes)} parts, and a grid has one to three",
            hint='e.g. `-g "cdiv(n, 1024), 1, 1"`',
        )
    return tuple(_axis(axis, signature) for axis in axes)


def _split(text: str) -> list[str]:
    """At the commas outside of parentheses."""
    depth, axes = 0, [""]
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            axes.append("")
        else:
            axes[-1] += character
    return [axis.strip() for axis in axes]


def _axis(text: str, signature: Signature) -> Expression:
    known = {
        name: int(value) for name, value in signature.constants if isinstance(value, (bool, int))
    }
    names = [argument.name for argument in signature.arguments if argument.is_integer]
    try:
        found = parse(_DIVISION.sub("//", text))
        for leaf in found.leaves():
            _judge(leaf, (*names, *known))
        return found.bind(known)
    except ExpressionError as error:
        message = f"the grid `{text}`: {error.message} (column {error.column})"
        raise UsageError(message, hint=error.hint) from None


def _judge(leaf: Leaf, known: Sequence[str]) -> None:
    if not isinstance(leaf, Name):
        hint = "a C function is handed no tensors; use the arguments"
        raise ExpressionError(f"`{leaf.key}` asks about a tensor or device", leaf.column, hint)
    if leaf.name not in known:
        hint = did_you_mean(leaf.name, known) or f"integers: {listed(known) or 'none'}"
        raise ExpressionError(f"`{leaf.name}` is not an integer argument", leaf.column, hint)


def to_c(node: Node, names: Mapping[str, str]) -> str:  # noqa: C901, PLR0911
    """A C expression of type `int64_t`; needs `kb_bad` in scope and the functions of the template.

    Args:
        node: what to write.
        names: argument -> C expression.
    """

    def write(part: Node) -> str:
        return to_c(part, names)

    match node:
        case Number():
            return "INT64_MIN" if node.value == INT64_MIN else f"INT64_C({node.value})"
        case Name() | Query() | Match():
            return f"(int64_t){names[node.key]}"
        case Negative():
            return f"kb_sub(0, {write(node.operand)}, &kb_bad)"
        case Not():
            return f"(int64_t)({write(node.operand)} == 0)"
        case Binary():
            function = _FUNCTIONS[node.operator]
            return f"kb_{function}({write(node.left)}, {write(node.right)}, &kb_bad)"
        case Compare():
            return f"(int64_t)({write(node.left)} {node.operator} {write(node.right)})"
        case Logic():
            symbol = "&&" if node.operator == "and" else "||"
            return f"(int64_t)({write(node.left)} != 0 {symbol} {write(node.right)} != 0)"
        case Choice():
            condition, then = write(node.condition), write(node.then)
            return f"({condition} != 0 ? {then} : {write(node.otherwise)})"
        case Call():
            return _call(node.function, [write(part) for part in node.arguments])


def _call(function: str, arguments: Sequence[str]) -> str:
    if function == "next_pow2":
        return f"kb_next_pow2({arguments[0]}, &kb_bad)"
    if function == "cdiv":
        return f"kb_cdiv({arguments[0]}, {arguments[1]}, &kb_bad)"
    found = arguments[0]
    for other in arguments[1:]:
        found = f"kb_{function}({found}, {other})"
    return found
