"""What is asked of arguments that may be None, without knowing that they are given.

`size(b, 0) if has(b) else 1` asks only when `b` is given, since the side that is not chosen is
never evaluated; so do `and` and `or`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbuild.languages.expression.nodes import Choice, Logic, Match, Name, Node, Not, Query, children

Names = frozenset[str]
_NOTHING: Names = frozenset()


def unguarded(node: Node, optional: Names, let: Mapping[str, Node]) -> Iterator[Name | Query]:
    """What is asked of arguments that may be None where it is asked.

    Args:
        node: the expression.
        optional: the arguments that may be None.
        let: what names stand for, so that a guard may have a name.
    """
    match node:
        case Name():
            if node.name in optional:
                yield node
        case Query():
            if node.function != "has" and node.tensor in optional:
                yield node
        case Choice():
            yield from unguarded(node.condition, optional, let)
            yield from unguarded(node.then, optional - known(node.condition, True, let), let)
            yield from unguarded(node.otherwise, optional - known(node.condition, False, let), let)
        case Logic():
            yield from unguarded(node.left, optional, let)
            holds = node.operator == "and"
            yield from unguarded(node.right, optional - known(node.left, holds, let), let)
        case _:
            for child in children(node):
                yield from unguarded(child, optional, let)


def known(node: Node, holds: bool, let: Mapping[str, Node]) -> Names:
    """The arguments that are given for sure when a condition holds, or when it does not."""
    match node:
        case Name(name) if name in let:
            return known(let[name], holds, let)
        case Query("has", name):
            return frozenset({name}) if holds else _NOTHING
        case Match(name):
            return frozenset({name}) if holds else _NOTHING
        case Not(operand):
            return known(operand, not holds, let)
        case Logic(operator, left, right):
            sides = known(left, holds, let), known(right, holds, let)
            both = (operator == "and") == holds
            return sides[0] | sides[1] if both else sides[0] & sides[1]
        case _:
            return _NOTHING
