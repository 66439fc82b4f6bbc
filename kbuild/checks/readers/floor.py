"""What a Python file uses that the oldest supported Python does not have, as far as syntax says.

Looked for in the tree, which knows every place. `ast.parse` with a `feature_version` refuses some
newer syntax as well, but stops at the first and is vague about its line: it has the last word only.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from kbuild.checks.readers.source import parse_source
from kbuild.checks.readers.statements import statements

FLOOR = (3, 10)
"""The oldest that the client and every Torch of the matrix run on."""
FLOOR_TEXT = ".".join(str(part) for part in FLOOR)
_OLDER = f"kernels promise Python {FLOOR_TEXT}: write it with older syntax"
# By name: this Python need not have them.
_NEW_NODES = {
    "TryStar": ("`except*`", "3.11"),
    "TypeAlias": ("`type`", "3.12"),
    "TemplateStr": ("`t` strings", "3.14"),
}
Newer = tuple[int, str, str]
"""Line, what is used, and the remedy."""
_KNOWN = (3, 13)
"""The newest Python all of whose syntax is looked for here."""
_STAR = re.compile(rb"[\[,:](?:\s|#[^\n]*\n|\\\r?\n)*\*")
"""A star where an element or an annotation begins."""


def newer_syntax(source: bytes, tree: ast.Module) -> list[Newer]:
    """Everything newer than `FLOOR`, in line order.

    Args:
        source: the file.
        tree: the same, parsed without a limit.
    """
    starred = _starred(source, tree) if _STAR.search(source) else ()
    found = {*_statements(tree), *starred}
    if not found and sys.version_info[:2] > _KNOWN:
        found = {*_refused(source)}
    return sorted(found)


def _statements(tree: ast.Module) -> Iterator[Newer]:
    nodes = ast.walk(tree) if sys.version_info[:2] > _KNOWN else _plain(tree)
    for node in nodes:
        said = _NEW_NODES.get(type(node).__name__)
        if said is None and getattr(node, "type_params", None):
            said = "type parameters", "3.12"
        if said is not None:
            what, release = said
            yield getattr(node, "lineno", 0), f"{what} came with Python {release}", _OLDER


def _plain(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements alone, which all syntax of known releases is a part of but for PEP 646."""
    return (node for node, _ in statements(tree, b""))


def _refused(source: bytes) -> Iterator[Newer]:
    try:
        parse_source(source, feature_version=FLOOR)
    except SyntaxError as error:
        yield error.lineno or 0, error.msg, _OLDER


def _starred(source: bytes, tree: ast.Module) -> Iterator[Newer]:
    """PEP 646."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Starred):
            yield node.lineno, "`*args: *Ts` came with Python 3.11", _OLDER
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            starred = any(isinstance(part, ast.Starred) for part in node.slice.elts)
            if starred and not _in_parentheses(node.slice, lines):
                yield node.lineno, "`x[*y]` came with Python 3.11", _OLDER


def _in_parentheses(node: ast.Tuple, lines: list[bytes]) -> bool:
    """A tuple's parentheses are its own."""
    return lines[node.lineno - 1][node.col_offset : node.col_offset + 1] == b"("
