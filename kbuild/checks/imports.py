"""A kernel's Python files find each other by relative imports, on every supported Python.

The client imports a kernel under its id, not under its name, and puts nothing on `sys.path`: an
absolute import of the kernel's own package fails, or finds somebody else's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.floor import FLOOR_TEXT, newer_syntax
from kbuild.checks.readers.libraries import metadata_of
from kbuild.checks.readers.source import parse_source
from kbuild.checks.readers.statements import imported, statements

_SYNTAX_HINT = "correct it; a kernel is written for the Python that kbuild runs on, or older"
GENERATED = "_ops"


@CHECKS.add
class Imports(Check):
    """Syntax, absolute self-imports, and relative imports that lead nowhere."""

    name = "imports"
    summary = f"Python files parse on Python {FLOOR_TEXT} and import each other relatively."
    group = "code"

    def run(self, output: Output) -> Iterator[Finding]:
        """Findings of every Python file, in path order."""
        metadata = metadata_of(output)
        own = metadata.python_name if metadata else None
        for path in output.python_files():
            yield from _file_findings(path, output.root, own)


def check_imports_source(path: Path, name: str) -> list[Finding]:
    """Check the Python package in the folder `path`; `name` is the kernel's Python name.

    The same as on a built variant: `_ops.py` at the top, which kbuild writes, counts as there.
    """
    own = name.replace("-", "_")
    return [f for file in sorted(path.rglob("*.py")) for f in _file_findings(file, path, own)]


def _file_findings(path: Path, root: Path, own: str | None) -> Iterator[Finding]:
    where = path.relative_to(root).as_posix()
    source = path.read_bytes()
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError) as error:
        yield _unparsed(where, error)
        return
    for line, used, remedy in newer_syntax(source, tree):
        what = f"needs a newer Python than {FLOOR_TEXT}: {used}"
        yield Finding("imports", "warning", f"{where}:{line}", what, remedy)
    for node, guarded in statements(tree):
        yield from _absolute(node, where, own)
        if not guarded:
            yield from _relative(node, where, path, root)


def _unparsed(where: str, error: Exception) -> Finding:
    line = getattr(error, "lineno", None)
    reason = getattr(error, "msg", None) or str(error)
    place = f"{where}:{line}" if line else where
    return Finding("imports", "error", place, f"does not parse: {reason}", _SYNTAX_HINT)


def _absolute(node: ast.AST, where: str, own: str | None) -> Iterator[Finding]:
    for module in imported(node):
        if own is not None and module.partition(".")[0] == own:
            line = getattr(node, "lineno", 0)
            hint = f"import relatively: `from .{module[len(own) + 1 :]} import ...`"
            what = f"imports its own package by name (`{module}`), which users do not have"
            yield Finding("imports", "error", f"{where}:{line}", what, hint)


def _relative(node: ast.AST, where: str, path: Path, root: Path) -> Iterator[Finding]:
    if not isinstance(node, ast.ImportFrom) or not node.level:
        return
    written = "." * node.level + (node.module or "")
    folder = path.parent
    for _ in range(node.level - 1):
        folder = folder.parent
    if folder != root and root not in folder.parents:
        what = f"`{written}` leads out of the kernel's package"
        yield Finding("imports", "error", f"{where}:{node.lineno}", what, "use fewer dots")
    elif node.module and not _exists(folder.joinpath(*node.module.split(".")), root):
        what = f"`{written}` is not in this variant"
        hint = "ship the file, or catch ImportError where it is optional"
        yield Finding("imports", "error", f"{where}:{node.lineno}", what, hint)


def _exists(module: Path, root: Path) -> bool:
    """A package, a Python file, an extension of that name, or the generated `_ops`."""
    if module.is_dir() or module == root / GENERATED:
        return True
    return any(module.parent.glob(f"{module.name}.*")) if module.parent.is_dir() else False
