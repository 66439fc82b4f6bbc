"""The imports of a Python file, and when each is carried out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Literal

When = Literal["load", "later", "optional", "never"]
"""`load`: whenever the file is imported; `later`: in a function, a branch or a loop, so perhaps
never; `optional`: its failure is caught; `never`: only type checkers see it."""
_IMPORTERS = ("import_module", "__import__")
_IMPORTING = tuple(name.encode() for name in _IMPORTERS)
_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_BLOCKS = (
    *(ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor),
    *(ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.Match, ast.match_case),
    *(ast.ExceptHandler, getattr(ast, "TryStar", ast.Try)),
)
"""What statements are parts of."""


def statements(tree: ast.AST, source: bytes | None = None) -> Iterator[tuple[ast.AST, When]]:
    """Every statement, and when it is carried out; also every expression, as a rule.

    Args:
        tree: a file, or a part of it.
        source: the file. Expressions are left out where it shows that none of them imports: they
            are nine nodes in ten.
    """
    is_shallow = source is not None and not any(word in source for word in _IMPORTING)
    waiting: list[tuple[ast.AST, When]] = [(tree, "load")]
    while waiting:
        node, when = waiting.pop()
        yield node, when
        if not is_shallow:
            waiting.extend(reversed(list(_children(node, when))))
        elif isinstance(node, _BLOCKS):
            children = [child for child in _children(node, when) if isinstance(child[0], _PARTS)]
            waiting.extend(reversed(children))


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that a node imports by their full names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module
    elif isinstance(node, ast.Call) and _called(node) in _IMPORTERS:
        yield from (_literal(argument) for argument in node.args[:1])


def is_type_checking(node: ast.If) -> bool:
    """True for `if TYPE_CHECKING:`."""
    test = node.test
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _children(node: ast.AST, when: When) -> Iterator[tuple[ast.AST, When]]:
    later: When = "later" if when == "load" else when
    match node:
        case _ if when == "never":
            yield from _each(ast.iter_child_nodes(node), when)
        case ast.Try(handlers=[_, *_]):
            yield from _each(ast.iter_child_nodes(node), "optional")
        case ast.With(items=items) | ast.AsyncWith(items=items) if any(map(_suppresses, items)):
            yield from _each(ast.iter_child_nodes(node), "optional")
        case ast.If() if is_type_checking(node):
            yield from _each(node.body, "never")
            yield from _each(node.orelse, when)
        case (
            ast.If(test=first)
            | ast.While(test=first)
            | ast.IfExp(test=first)
            | ast.For(iter=first)
            | ast.AsyncFor(iter=first)
            | ast.Match(subject=first)
            | ast.BoolOp(values=[first, *_])
        ):
            yield from _each(ast.iter_child_nodes(node), when, later, first=first)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _each([*node.decorator_list, node.args], when)
            yield from _each(node.body, later)
        case ast.Lambda():
            yield from _each([node.args], when)
            yield from _each([node.body], later)
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            yield from _each(ast.iter_child_nodes(node), later)
        case _:
            yield from _each(ast.iter_child_nodes(node), when)


def _each(
    nodes: Iterable[ast.AST], when: When, later: When | None = None, first: ast.AST | None = None
) -> Iterator[tuple[ast.AST, When]]:
    """The nodes with the same time; with `later`, that of all but `first`."""
    for node in nodes:
        yield node, when if later is None or node is first else later


def _suppresses(item: ast.withitem) -> bool:
    """True for `contextlib.suppress(...)`."""
    return isinstance(item.context_expr, ast.Call) and _called(item.context_expr) == "suppress"


def _called(node: ast.Call) -> str:
    function = node.func
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
