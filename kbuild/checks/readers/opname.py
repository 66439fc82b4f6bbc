"""Whether an expression visibly carries the kernel's own op namespace.

It does when it is `add_op_namespace_prefix(...)` imported from the kernel's `_ops`, an op of its
`ops`, the result of `custom_op`, or text that begins with one of these.
"""

from __future__ import annotations

import ast

from kbuild.checks.readers.meaning import CUSTOM_OP, NAMESPACE, OPS, Package
from kbuild.checks.readers.scopes import Binding, Internal, Scope, Value

PREFIXERS = frozenset(
    f"{OPS}.{name}"
    for name in (
        "add_op_namespace_prefix",
        "torch_add_op_namespace_prefix",
        "jax_add_ffi_target_name_prefix",
    )
)
_FIRST_FIELD = ("{}", "{0}", "%s")


class OpNames:
    """Answers for one package."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._open: set[int] = set()

    def is_namespaced(self, node: ast.expr, scope: Scope) -> bool:
        """True when every value that the source shows for `node` carries the namespace."""
        if id(node) in self._open:
            return True  # `name = name + "_out"`: the other bindings decide
        self._open.add(id(node))
        answer = self._is_own(node, scope) or self._is_made_of_own(node, scope)
        self._open.discard(id(node))
        return answer

    def _is_own(self, node: ast.expr, scope: Scope) -> bool:
        meanings = self.package.denote(node, scope)
        if meanings and all(_is_own(meaning) for meaning in meanings):
            return True
        if not isinstance(node, ast.Call):
            return False
        called = self.package.denote(node.func, scope)
        return bool(called) and called <= PREFIXERS

    def _is_made_of_own(self, node: ast.expr, scope: Scope) -> bool:
        if isinstance(node, ast.Name):
            return self._all_bound(self.package.lookup(node.id, scope))
        parts = self._parts_that_decide(node, scope)
        return bool(parts) and all(self.is_namespaced(part, scope) for part in parts)

    def _all_bound(self, bindings: list[Binding]) -> bool:
        return bool(bindings) and all(self._is_bound(binding) for binding in bindings)

    def _is_bound(self, binding: Binding) -> bool:
        if isinstance(binding, Value):
            return not binding.instance and self.is_namespaced(binding.node, binding.scope)
        return isinstance(binding, Internal) and self._all_bound(self.package.bindings_of(binding))

    def _parts_that_decide(self, node: ast.expr, scope: Scope) -> list[ast.expr]:
        """The parts that must carry the namespace for the whole to do so; none when it cannot."""
        match node:
            case ast.Call():
                return self._call(node, scope)
            case ast.Attribute(value=part) | ast.Subscript(value=part) | ast.NamedExpr(value=part):
                return [part]
            case ast.FormattedValue(value=part) | ast.JoinedStr(values=[part, *_]):
                return [part]
            case ast.IfExp(body=part, orelse=other):
                return [part, other]
            case ast.BoolOp(values=parts):
                return parts
        return _operands(node)

    def _call(self, node: ast.Call, scope: Scope) -> list[ast.expr]:
        meanings = self.package.denote(node.func, scope)
        if meanings & {"str", "getattr"}:
            return node.args[:1]
        match node.func:
            case ast.Attribute(value=ast.Constant(value=str(text)), attr="format"):
                return node.args[:1] if text.startswith(_FIRST_FIELD) else []
            case ast.Attribute(value=ast.Constant(value=str()), attr="join"):
                return _first_element(node.args[0]) if node.args else []
            case ast.Attribute(value=value):
                return [value]
        return []


def _operands(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=ast.Add()):
            return [left]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            return (_first_element(right) or [right]) if text.startswith(_FIRST_FIELD) else []
    return []


def _first_element(node: ast.expr) -> list[ast.expr]:
    return node.elts[:1] if isinstance(node, ast.Tuple | ast.List) else []


def _is_own(meaning: str) -> bool:
    return meaning in (CUSTOM_OP, NAMESPACE) or meaning.startswith(f"{NAMESPACE}.")
