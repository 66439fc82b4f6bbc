"""Finds kernel functions that an op names and that its sources cannot define.

A DSL reports them when it compiles. A module may define names dynamically, so only those are
reported that cannot exist: a name that no source binds, and a plain function where only decorated
are kernels.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from kbuild.ops.dialects import Dialect
from kbuild.ops.model import Launch, OpSpec
from kbuild.project.config.issue import Issue, one_of

_DYNAMIC = {"globals", "locals", "vars", "setattr", "exec", "eval", "__dict__", "__getattr__"}
"""Names in a module that may bind further names dynamically."""


def missing_kernel(
    op: OpSpec, launch: Launch, dialect: Dialect, modules: Mapping[str, ast.Module]
) -> Issue | None:
    """Return the error for a launch whose function cannot exist; else None.

    Args:
        op: the op.
        launch: one of its launches.
        dialect: the DSL.
        modules: all sources of the section, by file.
    """
    nodes = [node for module in modules.values() for node in ast.walk(module)]
    bound = Counter(name for node in nodes for name in _bound_names(node))
    if not bound:  # the sources have not been written yet
        return None
    if not dialect.decorator or bound["*"] or any(_name(node) in _DYNAMIC for node in nodes):
        return None
    path = (*launch.path, "function")
    names = [name for name in launch.functions if bound[name]]
    functions = [
        (file, node)
        for file, module in modules.items()
        for node in module.body
        if isinstance(node, ast.FunctionDef)
    ]
    if not names:
        wanted = " or ".join(f"`{name}`" for name in launch.functions)
        defined = {node.name for _, node in functions}
        hint = one_of(launch.functions[0], defined)
        return Issue(path, f"there is no {wanted} in `{op.sources[0]}`", hint)
    plain = {node.name: (file, node) for file, node in functions if not node.decorator_list}
    if not dialect.only_decorated or any(n not in plain or bound[n] > 1 for n in names):
        return None
    file, function = plain[names[0]]
    message = f"`{names[0]}` has no `{dialect.decorator}`, so it is not a kernel"
    return Issue(path, message, f"write `{dialect.decorator}` above {file}:{function.lineno}")


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.name if isinstance(node, ast.FunctionDef) else ""


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield names that a statement or a target binds; `*` for an import of all names."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        yield _name(node)
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.MatchAs) and node.name:
        yield node.name
