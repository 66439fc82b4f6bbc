"""The imports of a Python file, and whether the file can do without each."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def statements(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it may fail or never runs: in a `try`, or for type checkers."""
    waiting = [(tree, False)]
    while waiting:
        node, guarded = waiting.pop()
        yield node, guarded
        waiting.extend(reversed(list(_children(node, guarded=guarded))))


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that a node imports by their full names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module
    elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
        yield from (_literal(argument) for argument in node.args[:1])


def is_type_checking(node: ast.If) -> bool:
    """True for `if TYPE_CHECKING:`."""
    test = node.test
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _children(node: ast.AST, *, guarded: bool) -> Iterator[tuple[ast.AST, bool]]:
    if isinstance(node, ast.Try) and node.handlers:
        yield from ((child, True) for child in ast.iter_child_nodes(node))
    elif isinstance(node, ast.If) and is_type_checking(node):
        yield from ((child, True) for child in node.body)
        yield from ((child, guarded) for child in node.orelse)
    else:
        yield from ((child, guarded) for child in ast.iter_child_nodes(node))


def _called(node: ast.Call) -> str:
    function = node.func
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
