"""The project's Python package: where it is, and what its files say."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue
from kbuild.sourcetree import SourceTree

PACKAGE_FOLDERS: Mapping[str, str] = {
    "torch": "torch-ext",
    "torch-noarch": "torch-ext",
    "tvm-ffi": "tvm-ffi-ext",
}
"""Framework table -> the folder that holds the Python package."""


def python_package(document: Document, context: Context) -> Iterator[Issue]:
    """The Python package is there, not nested in itself, and loads under any name."""
    name, frameworks = document.python_name(), document.frameworks()
    if name is None or len(frameworks) != 1:
        return  # nobody can say where it should be
    folder = f"{PACKAGE_FOLDERS[frameworks[0]]}/{name}"
    if not context.tree.is_file(f"{folder}/__init__.py"):
        message = f"the Python package needs `{folder}/__init__.py`"
        yield Issue(("general", "name"), message, "its name is `general.name` with `-` as `_`")
        return
    if context.tree.is_dir(f"{folder}/{name}"):
        message = f"`{folder}/{name}` is nested in itself"
        yield Issue(("general", "name"), message, f"move its files up to `{folder}`, or rename it")
    yield from _files(context.tree, folder, name)


def _files(tree: SourceTree, folder: str, name: str) -> Iterator[Issue]:
    for file in tree.walk(folder):
        if not file.endswith(".py") or not tree.is_file(file):
            continue  # data, a pipe, a link to nowhere
        try:
            module = _parse(tree.read_bytes(file), file)
        except SyntaxError as error:
            yield Issue((), f"not valid Python: {error.msg}", file=file, line=error.lineno or 1)
            continue
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "strerror", None) or error
            yield Issue((), f"cannot be read as Python: {why}", file=file)
            continue
        yield from _self_imports(module, file, name)
        if file == f"{folder}/__init__.py" and not _defines_all(module):
            message = "no `__all__`, so nothing says what the kernel offers"
            hint = 'list the public names, e.g. `__all__ = ["relu"]`'
            yield Issue((), message, hint, "warning", file=file, line=1)


def _parse(source: bytes, file: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the author's warnings are not kbuild's business
        return ast.parse(source, file)


def _defines_all(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == "__all__" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(module)
    )


def _self_imports(module: ast.Module, file: str, name: str) -> Iterator[Issue]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            targets = [node.module or ""]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        if any(target.split(".")[0] == name for target in targets):
            message = f"`{name}` is imported by its name, but kernels are loaded under another one"
            hint = "write a relative import, e.g. `from . import ...`"
            yield Issue((), message, hint, "warning", file=file, line=node.lineno)


RULES = (python_package,)
