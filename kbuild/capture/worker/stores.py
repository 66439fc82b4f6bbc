"""Which parameters of a Triton kernel it stores through."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from triton.runtime.jit import JITFunction

_STORES = {"store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or"} | {
    "atomic_xor", "atomic_xchg", "atomic_cas",
}  # fmt: skip


@cache
def written_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel through which it may store; those of functions that it calls as well.

    A name counts as derived from all names in the expressions that are assigned to it, but for what
    is loaded.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn))).body[0]
    names = [parameter.name for parameter in kernel.params]
    origins = _Origins({name: {name} for name in names})
    written: set[str] = set()
    for _ in range(3):  # loops carry names around
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                origins.assign(node)
            elif isinstance(node, ast.Call):
                for place in _places(node, kernel):
                    written |= origins.of(place)
    return frozenset(written & set(names))


@dataclass
class _Origins:
    """Name in a kernel -> the parameters that it derives from."""

    names: dict[str, set[str]]

    def of(self, node: ast.AST) -> set[str]:
        """The parameters that an expression derives from."""
        if isinstance(node, ast.Call) and _called(node) in ("load", "sum", "max", "min", "dot"):
            return set()
        if isinstance(node, ast.Name):
            return self.names.get(node.id, set())
        return set().union(*(self.of(child) for child in ast.iter_child_nodes(node)))

    def assign(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        """Follow an assignment."""
        if node.value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    self.names.setdefault(name.id, set()).update(self.of(node.value))


def _places(node: ast.Call, kernel: Any) -> Iterator[ast.expr]:
    """Expressions of pointers through which a call may store."""
    function = _called(node)
    if function in _STORES:
        if isinstance(node.func, ast.Attribute) and _is_descriptor_store(node):
            yield node.func.value
        else:
            yield node.args[0] if node.args else node.keywords[0].value
        return
    inner = kernel.fn.__globals__.get(function)
    if isinstance(inner, JITFunction) and inner is not kernel:
        arguments = dict(zip([p.name for p in inner.params], node.args, strict=False))
        arguments |= {word.arg: word.value for word in node.keywords if word.arg}
        for name in written_parameters(inner) & arguments.keys():
            yield arguments[name]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_descriptor_store(node: ast.Call) -> bool:
    """`descriptor.store(...)`, not `tl.store(...)`."""
    owner = node.func
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return not (isinstance(owner, ast.Name) and owner.id in ("tl", "triton", "language"))
