"""Which questions about tensors are asked without knowing that the tensor is there.

`size(b, 0) if has(b) else 1` asks only when `b` is given, since the side that is not chosen is
never evaluated; so do `and` and `or`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbuild.languages.expression.nodes import Choice, Logic, Name, Node, Not, Query, children

Tensors = frozenset[str]
_NOTHING: Tensors = frozenset()


def unguarded(node: Node, given: Tensors, let: Mapping[str, Node]) -> Iterator[Query]:
    """The questions about tensors that may be None where they are asked.

    Args:
        node: the expression.
        given: the tensors that are there.
        let: what names stand for, so that a guard may have a name.
    """
    match node:
        case Query():
            if node.function != "has" and node.tensor and node.tensor not in given:
                yield node
        case Choice():
            yield from unguarded(node.condition, given, let)
            yield from unguarded(node.then, given | known(node.condition, True, let), let)
            yield from unguarded(node.otherwise, given | known(node.condition, False, let), let)
        case Logic():
            yield from unguarded(node.left, given, let)
            holds = node.operator == "and"
            yield from unguarded(node.right, given | known(node.left, holds, let), let)
        case _:
            for child in children(node):
                yield from unguarded(child, given, let)


def known(node: Node, holds: bool, let: Mapping[str, Node]) -> Tensors:
    """The tensors that are there for sure when a condition holds, or when it does not."""
    match node:
        case Name(name) if name in let:
            return known(let[name], holds, let)
        case Query("has", tensor):
            return frozenset({tensor}) if holds else _NOTHING
        case Not(operand):
            return known(operand, not holds, let)
        case Logic(operator, left, right):
            sides = known(left, holds, let), known(right, holds, let)
            both = (operator == "and") == holds
            return sides[0] | sides[1] if both else sides[0] & sides[1]
        case _:
            return _NOTHING
