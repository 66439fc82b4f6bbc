"""Rewrites the Python modules of a package for a kernel, which may have any name.

Imports of its own modules become relative, and the ops come from `_ops`, which the build writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignNames:
    """The meaning of names in the package's modules."""

    package: str
    """The import package that becomes the kernel's; empty when there is none."""
    extensions: Collection[str]
    """Dotted names of the extension modules."""
    namespaces: Collection[str]
    """Namespaces of ops that the C++ sources registered."""


@dataclass(frozen=True)
class _Replacement:
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def rewrite_module(
    text: str, depth: int, names: ForeignNames, importable: str = ""
) -> tuple[str, tuple[str, ...]]:
    """A module's new text, and what was left, each with its line.

    Args:
        text: the module.
        depth: how many folders it is below the package's own.
        names: what its names mean.
        importable: the kernel's package, for a test, which imports it by that name.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return text, (f"{error.lineno}: is not Python: {error.msg}",)
    rewriter = _ModuleRewriter(f"{importable}." if importable else "." * (depth + 1), names)
    for statement in tree.body:
        if _only_loads(statement, tree):
            rewriter.replace_loading(statement)
        else:
            rewriter.visit(statement)
    # Not `splitlines`, for which a form feed also ends a line.
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)
    # From the end, so that the places of earlier changes stay right.
    for change in sorted(rewriter.changes, key=lambda change: change.start, reverse=True):
        (first, begin), (last, end) = change.start, change.end
        # `ast` counts columns in bytes of UTF-8.
        before = lines[first].encode()[:begin].decode()
        lines[first : last + 1] = [before + change.text + lines[last].encode()[end:].decode()]
    if rewriter.wanted:
        at = _after_docstring(tree)
        line = f"from {rewriter.dots}_ops import {', '.join(sorted(rewriter.wanted))}\n"
        lines.insert(at, line if at == 0 or lines[at - 1].endswith("\n") else f"\n{line}")
    return "".join(lines), tuple(rewriter.notes)


def _only_loads(statement: ast.stmt, tree: ast.Module) -> bool:
    """True for a statement that finds and loads libraries of ops, and gives the rest nothing."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    inside = list(ast.walk(statement))
    if not any(isinstance(node, ast.Call) and _loads_library(node) for node in inside):
        return False
    stored = (node for node in inside if isinstance(node, ast.Name))
    names = {node.id for node in stored if isinstance(node.ctx, ast.Store)}
    imports = (node for node in inside if isinstance(node, (ast.Import, ast.ImportFrom)))
    aliases = (alias for node in imports for alias in node.names)
    names |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    others = (node for other in tree.body if other is not statement for node in ast.walk(other))
    return not any(isinstance(node, ast.Name) and node.id in names for node in others)


def _loads_library(call: ast.Call) -> bool:
    return ast.unparse(call.func).endswith("ops.load_library")


def _after_docstring(tree: ast.Module) -> int:
    """The line behind the docstring and the imports from `__future__`."""
    at = 0
    for index, node in enumerate(tree.body):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if (index == 0 and is_text) or is_future:
            at = node.end_lineno or at
    return at


class _ModuleRewriter(ast.NodeVisitor):
    def __init__(self, dots: str, names: ForeignNames) -> None:
        self.dots, self.names = dots, names
        self.is_test = not dots.startswith(".")
        self.changes: list[_Replacement] = []
        self.wanted: set[str] = set()
        self.notes: list[str] = []

    def visit_Import(self, node: ast.Import) -> None:
        lines = []
        for name in node.names:
            if name.name in self.names.extensions:
                bound = name.asname or name.name
                if "." in bound:
                    self._note(node, f"`import {name.name}`: use `ops` of `{self.dots}_ops`")
                    return
                lines.append(f"from {self.dots}_ops import ops as {bound}")
            elif self._is_own(name.name):
                inside = self._inside(name.name)
                if name.asname is None and self.is_test:
                    lines.append(self._plain_import(name.name))
                elif name.asname and inside:
                    parent, _, last = inside.rpartition(".")
                    lines.append(f"from {self._module(parent)} import {last} as {name.asname}")
                elif self.is_test:
                    lines.append(f"import {self._module('')} as {name.asname}")
                else:
                    self._note(node, f"`import {name.name}` of the kernel's own module")
                    return
            else:
                lines.append(f"import {name.name}" + (f" as {name.asname}" if name.asname else ""))
        if any(n.name in self.names.extensions or self._is_own(n.name) for n in node.names):
            indent = "\n" + " " * node.col_offset
            self._replace(node, indent.join(lines))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = self._absolute(node)
        if module in self.names.extensions:
            lines = [f"from {self.dots}_ops import ops"]
            lines += [f"{name.asname or name.name} = ops.{name.name}" for name in node.names]
            self._replace(node, ("\n" + " " * node.col_offset).join(lines))
            return
        if module is None:
            return
        inner = [n for n in node.names if f"{module}.{n.name}" in self.names.extensions]
        others = [n for n in node.names if n not in inner]
        if not inner and (node.level or not self._is_own(module)):
            return
        lines = [f"from {self.dots}_ops import ops as {name.asname or name.name}" for name in inner]
        if others:
            where = "." * node.level + (node.module or "")
            where = where if node.level else self._module(self._inside(module))
            texts = [n.name + (f" as {n.asname}" if n.asname else "") for n in others]
            lines.append(f"from {where} import {', '.join(texts)}")
        self._replace(node, ("\n" + " " * node.col_offset).join(lines))

    def replace_loading(self, statement: ast.stmt) -> None:
        """The library is loaded by the import of `_ops`."""
        self._replace(
            statement, f"from {self.dots}_ops import ops  # noqa: F401 - loads the library"
        )

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`torch.ops.<namespace>` is `ops`."""
        if node.attr in self.names.namespaces and ast.unparse(node.value) == "torch.ops":
            self.wanted.add("ops")
            self._replace(node, "ops")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """The build's `_ops` loads the library."""
        if _loads_library(node):
            self._note(node, "`load_library`: importing `_ops` loads the library")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """`"<namespace>::op"` is `add_op_namespace_prefix("op")`."""
        if not isinstance(node.value, str):
            return
        namespace, colons, op = node.value.partition("::")
        if colons and namespace in self.names.namespaces and op.isidentifier():
            self.wanted.add("add_op_namespace_prefix")
            self._replace(node, f'add_op_namespace_prefix("{op}")')

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts in f-strings have no places of their own in every Python."""

    def _module(self, inside: str) -> str:
        """A module of the kernel, by its name inside the package."""
        module = f"{self.dots}{inside}"
        return module.rstrip(".") if self.is_test else module

    def _plain_import(self, module: str) -> str:
        """`import pkg.sub` of a test, whose name for the package stays."""
        package, own = self.names.package, self.dots.rstrip(".")
        lines = [] if package == module else [f"import {self._module(self._inside(module))}"]
        return "; ".join([*lines, f"import {own}" + (f" as {package}" if package != own else "")])

    def _absolute(self, node: ast.ImportFrom) -> str | None:
        """The dotted module of a `from` import; None when it is above the package."""
        if not node.level:
            return node.module or ""
        if self.dots == "." * node.level:
            return ".".join(filter(None, (self.names.package, node.module)))
        return None

    def _is_own(self, module: str) -> bool:
        package = self.names.package
        return bool(package) and (module == package or module.startswith(f"{package}."))

    def _inside(self, module: str) -> str:
        return module[len(self.names.package) :].lstrip(".")

    def _replace(self, node: ast.stmt | ast.expr, text: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101, PT018
        start = (node.lineno - 1, node.col_offset)
        self.changes.append(_Replacement(start, (node.end_lineno - 1, node.end_col_offset), text))

    def _note(self, node: ast.stmt | ast.expr, what: str) -> None:
        self.notes.append(f"{node.lineno}: {what}")
