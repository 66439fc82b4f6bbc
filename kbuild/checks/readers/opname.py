"""Whether an expression visibly carries the kernel's own op namespace.

It does when it is `add_op_namespace_prefix(...)` imported from the kernel's `_ops`, an op of its
`ops`, the result of `custom_op`, or text that begins with one of these.
"""

from __future__ import annotations

import ast
import re

from kbuild.checks.readers.contents import Found
from kbuild.checks.readers.meaning import CUSTOM_OP, NAMESPACE, OPS, Package
from kbuild.checks.readers.scopes import Binding, Element, Internal, Scope, Value

PREFIXERS = frozenset(
    f"{OPS}.{name}"
    for name in (
        "add_op_namespace_prefix",
        "torch_add_op_namespace_prefix",
        "jax_add_ffi_target_name_prefix",
    )
)
_FIRST_FIELD = re.compile(r"\{(?P<brace>\w*)\}|%(?:\((?P<percent>\w+)\))?s")
_KEEP_START = frozenset(
    ("strip", "rstrip", "split", "rsplit", "partition", "rpartition", "removesuffix", "__str__")
)
"""Methods of text after which it, or its first part, begins as before."""


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
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, Element | ast.List | ast.Tuple | ast.Set | ast.ListComp):
            held = node.of if isinstance(node, Element) else node
            return self._all(self.package.contents.elements(held, scope))
        chosen = self._chosen(node, scope)
        if chosen is not None:
            return self._all(chosen)
        return self._all([(part, scope) for part in self._parts_that_decide(node, scope)])

    def _all(self, found: Found | None) -> bool:
        return bool(found) and all(self.is_namespaced(*one) for one in found or ())

    def _chosen(self, node: ast.expr, scope: Scope) -> Found | None:
        """What a subscript of a known container may be; None for all else."""
        if not isinstance(node, ast.Subscript):
            return None
        return self.package.contents.chosen(node, scope)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> bool:
        """Of a class of the package: what it is bound to there; else as the object."""
        for base in self.package.denote(node.value, scope):
            if self.package.is_class(base):
                return self._all_bound(self.package.class_scope(base).names.get(node.attr, []))
        return self.is_namespaced(node.value, scope)

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
            case ast.NamedExpr(value=part) | ast.FormattedValue(value=part):
                return [part]
            case ast.JoinedStr(values=parts):
                return [part for part in parts if not _is_empty(part)][:1]
            case ast.Subscript(value=part) if _starts_at_0(node):
                return [part]
            case ast.BoolOp(values=parts):
                return parts
        return _operands(node)

    def _call(self, node: ast.Call, scope: Scope) -> list[ast.expr]:
        meanings = self.package.denote(node.func, scope)
        if meanings & {"str", "getattr"}:
            return node.args[:1]
        match node.func:
            case ast.Attribute(value=ast.Constant(value=str(text)), attr="format"):
                return _formatted(text, node)
            case ast.Attribute(value=ast.Constant(value=str()), attr="join"):
                return _first_element(node.args[0]) if node.args else []
            case ast.Attribute(value=value, attr=method) if method in _KEEP_START:
                return [value]
        return []


def _operands(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.IfExp(body=part, orelse=other):
            return [part, other]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [right if _is_empty(left) else left]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            return _interpolated(text, right)
    return []


def _formatted(text: str, call: ast.Call) -> list[ast.expr]:
    """The argument that `text.format(...)` begins with."""
    field = _FIRST_FIELD.match(text)
    if field is None or field["brace"] is None:
        return []
    name = field["brace"] or "0"
    if name.isdigit():
        return call.args[int(name) : int(name) + 1]
    return [keyword.value for keyword in call.keywords if keyword.arg == name]


def _interpolated(text: str, given: ast.expr) -> list[ast.expr]:
    """The operand that `text % given` begins with."""
    field = _FIRST_FIELD.match(text)
    if field is None or field["brace"] is not None:
        return []
    if field["percent"] is None:
        return _first_element(given) or [given]
    subscript = ast.Subscript(given, ast.Constant(field["percent"]), ast.Load())
    return [subscript]


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _starts_at_0(node: ast.Subscript) -> bool:
    match node.slice:
        case ast.Constant(value=0) | ast.Slice(lower=None | ast.Constant(value=0), step=None):
            return True
    return False


def _first_element(node: ast.expr) -> list[ast.expr]:
    return node.elts[:1] if isinstance(node, ast.Tuple | ast.List) else []


def _is_own(meaning: str) -> bool:
    return meaning in (CUSTOM_OP, NAMESPACE) or meaning.startswith(f"{NAMESPACE}.")
