"""The value of an expression: 64-bit integers, checked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from kbuild.languages.expression.errors import EvaluationError
from kbuild.languages.expression.nodes import (
    INT64_MAX,
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

ZERO = "division by zero"
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
            return _checked(int(values[node.key]))
        case Negative():
            return _checked(-evaluate(node.operand, values))
        case Not():
            return int(not evaluate(node.operand, values))
        case Binary():
            left, right = evaluate(node.left, values), evaluate(node.right, values)
            return _checked(_arithmetic(node.operator, left, right))
        case Compare():
            left, right = evaluate(node.left, values), evaluate(node.right, values)
            return int(_COMPARE[node.operator](left, right))
        case _:
            return _lazy(node, values)


def _lazy(node: Logic | Choice | Call, values: Mapping[str, int]) -> int:
    match node:
        case Logic(operator="and"):
            return int(bool(evaluate(node.left, values) and evaluate(node.right, values)))
        case Logic():
            return int(bool(evaluate(node.left, values) or evaluate(node.right, values)))
        case Choice():
            chosen = node.then if evaluate(node.condition, values) else node.otherwise
            return evaluate(chosen, values)
        case Call():
            return _checked(_called(node, [evaluate(a, values) for a in node.arguments]))


def _arithmetic(symbol: str, left: int, right: int) -> int:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0:
        raise EvaluationError(ZERO)
    return left // right if symbol == "//" else left % right


def _called(node: Call, arguments: list[int]) -> int:
    match node.function:
        case "min":
            return min(arguments)
        case "max":
            return max(arguments)
        case "next_pow2":
            return 1 << max(arguments[0] - 1, 0).bit_length()
    dividend, divisor = arguments
    if divisor == 0:
        raise EvaluationError(ZERO)
    return -(-dividend // divisor)


def _checked(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise EvaluationError(OVERFLOW)
    return value
