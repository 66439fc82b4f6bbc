"""Expressions with what is known put in: constants of a configuration, numbers of the author."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kbuild.languages.expression.errors import EvaluationError, ExpressionError
from kbuild.languages.expression.evaluation import evaluate
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
    children,
    is_condition,
)


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
    if isinstance(node, Choice):
        return _chosen(node, known)
    if isinstance(node, Logic):
        return _joined(node, known)
    folded = _rebuilt(node, known)
    parts = children(folded)
    if parts and all(isinstance(part, Number) for part in parts):
        return _number(folded)
    return folded


def _chosen(node: Choice, known: Mapping[str, int]) -> Node:
    """A side that is never evaluated may hold anything."""
    condition = fold(node.condition, known)
    if isinstance(condition, Number):
        return fold(node.then if condition.value else node.otherwise, known)
    return Choice(condition, fold(node.then, known), fold(node.otherwise, known), node.column)


def _joined(node: Logic, known: Mapping[str, int]) -> Node:
    """`0 and b` and `1 or b` are known; otherwise the right side decides."""
    left = fold(node.left, known)
    if isinstance(left, Number) and bool(left.value) == (node.operator == "or"):
        return Number(int(bool(left.value)), node.column, boolean=True)
    right = fold(node.right, known)
    if not isinstance(left, Number):
        return replace(node, left=left, right=right)
    return right if is_condition(right) else fold(Compare("!=", right, Number(0), node.column))


def _rebuilt(node: Node, known: Mapping[str, int]) -> Node:
    match node:
        case Negative() | Not():
            return replace(node, operand=fold(node.operand, known))
        case Binary() | Compare():
            return replace(node, left=fold(node.left, known), right=fold(node.right, known))
        case Call():
            return replace(node, arguments=tuple(fold(part, known) for part in node.arguments))
        case _:
            return node


def _number(node: Node) -> Number:
    try:
        return Number(evaluate(node, {}), node.column, boolean=is_condition(node))
    except EvaluationError as error:
        raise ExpressionError(f"always gives {error}", node.column) from error
