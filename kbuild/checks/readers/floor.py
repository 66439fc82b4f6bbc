"""What a Python file uses that the oldest supported Python does not have, as far as syntax says.

Looked for in the tree, which knows every place. `ast.parse` with a `feature_version` refuses some
newer syntax as well, but stops at the first and is vague about its line: it has the last word only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kbuild.checks.readers.source import parse_source
from kbuild.checks.readers.statements import is_type_checking

FLOOR = (3, 9)
FLOOR_TEXT = ".".join(str(part) for part in FLOOR)
_FUTURE = "write `from __future__ import annotations` at the top of the file"
_OLDER = f"kernels promise Python {FLOOR_TEXT}: write it with older syntax"
# By name: this Python need not have them.
_NEW_NODES = {
    "Match": ("`match`", "3.10"),
    "TryStar": ("`except*`", "3.11"),
    "TypeAlias": ("`type`", "3.12"),
    "TemplateStr": ("`t` strings", "3.14"),
}
Newer = tuple[int, str, str]
"""Line, what is used, and the remedy."""


def newer_syntax(source: bytes, tree: ast.Module) -> list[Newer]:
    """Everything newer than `FLOOR`, in line order.

    Args:
        source: the file.
        tree: the same, parsed without a limit.
    """
    found = {*_statements(tree), *_starred(source, tree), *_unions(tree)}
    return sorted(found or {*_refused(source)})


def _statements(tree: ast.Module) -> Iterator[Newer]:
    for node in ast.walk(tree):
        said = _NEW_NODES.get(type(node).__name__)
        if said is None and getattr(node, "type_params", None):
            said = "type parameters", "3.12"
        if said is not None:
            what, release = said
            yield getattr(node, "lineno", 0), f"{what} came with Python {release}", _OLDER


def _refused(source: bytes) -> Iterator[Newer]:
    try:
        parse_source(source, feature_version=FLOOR)
    except SyntaxError as error:
        yield error.lineno or 0, error.msg, _OLDER


def _starred(source: bytes, tree: ast.Module) -> Iterator[Newer]:
    """PEP 646, and assignment expressions that need no parentheses any more."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Starred):
            yield node.lineno, "`*args: *Ts` came with Python 3.11", _OLDER
        if isinstance(node, ast.Subscript):
            index = node.slice
            starred = isinstance(index, ast.Tuple) and any(
                isinstance(part, ast.Starred) for part in index.elts
            )
            if starred and not _in_parentheses(index, lines):
                yield node.lineno, "`x[*y]` came with Python 3.11", _OLDER
        for part in _bare_places(node):
            if isinstance(part, ast.NamedExpr) and not _in_parentheses(part, lines):
                what = "`:=` without parentheses in an index or a set came with Python 3.10"
                yield part.lineno, what, _OLDER


def _bare_places(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Set):
        return node.elts
    if isinstance(node, ast.Subscript):
        return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return []


def _in_parentheses(node: ast.expr, lines: list[bytes]) -> bool:
    """A tuple's parentheses are its own; those of another expression stand before it."""
    before = lines[node.lineno - 1][: node.col_offset].rstrip()
    own = lines[node.lineno - 1][node.col_offset : node.col_offset + 1]
    return own == b"(" if isinstance(node, ast.Tuple) else before.endswith(b"(")


def _unions(tree: ast.Module) -> Iterator[Newer]:
    """PEP 604: before 3.10, evaluating `int | None` raises."""
    if any(_is_future(node) for node in tree.body):
        return
    for annotation in _evaluated(tree, local=False):
        for node in ast.walk(annotation):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                what = f"`{ast.unparse(node)}` in an annotation came with Python 3.10"
                yield node.lineno, what, _FUTURE
                break


def _is_future(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
    )


def _evaluated(node: ast.AST, *, local: bool) -> Iterator[ast.expr]:
    """Annotations that Python evaluates: those of variables only outside of functions."""
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        yield from (arg.annotation for arg in every if arg and arg.annotation)
        yield from [node.returns] if node.returns else []
    elif isinstance(node, ast.AnnAssign) and not local:
        yield node.annotation
    inside = function or (local and not isinstance(node, ast.ClassDef))
    if isinstance(node, ast.If) and is_type_checking(node):
        children: Iterator[ast.AST] = iter(node.orelse)
    else:
        children = ast.iter_child_nodes(node)
    for child in children:
        yield from _evaluated(child, local=inside)
