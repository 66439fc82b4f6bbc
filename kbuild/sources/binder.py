"""Walks the syntax tree of a Python file and records the names that it binds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kbuild.sources.python_syntax import is_type_checking
from kbuild.sources.scopes import (
    OPS_MODULE,
    Comprehension,
    DefinitionBinding,
    Element,
    ExpressionBinding,
    ExternalImport,
    FunctionNode,
    InternalImport,
    ModuleNames,
    ModulePath,
    NameScope,
)

_OF_OPS = ("ops", "add_op_namespace_prefix")
"""What every `_ops.py` of Torch has."""
_GROWING_METHODS = {
    "append": "one",
    "add": "one",
    "insert": "one",
    "extend": "all",
    "update": "all",
}


def bind_names(tree: ast.Module, package: ModulePath, own: str) -> ModuleNames:
    """Read one file.

    Args:
        tree: the file.
        package: the package that its relative imports start from.
        own: the kernel's Python name; absolute imports of it count as relative ones.
    """
    binder = _Binder(package, own)
    binder.visit(tree)
    decorators = frozenset(
        id(decorator)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for decorator in node.decorator_list
    )
    return ModuleNames(
        binder.scope, binder.calls, binder.bodies, binder.lambdas, binder.attributes, decorators
    )


class _Binder(ast.NodeVisitor):
    """Walks one file and fills its scopes."""

    def __init__(self, package: ModulePath, own: str) -> None:
        self.package = package
        self.own = own
        self.scope = NameScope(package=package)
        self.functions: list[DefinitionBinding] = []
        self.calls: list[tuple[ast.Call, NameScope]] = []
        self.bodies: dict[int, NameScope] = {}
        self.lambdas: dict[int, DefinitionBinding] = {}
        self.attributes: list[tuple[ast.Attribute, NameScope]] = []
        self._visitors: dict[type, Callable[[Any], object]] = {}

    def visit(self, node: ast.AST) -> None:
        """As the base does it, which looks for the method of each node anew."""
        kind = type(node)
        if kind not in self._visitors:
            self._visitors[kind] = getattr(self, f"visit_{kind.__name__}", self.generic_visit)
        self._visitors[kind](node)

    def generic_visit(self, node: ast.AST) -> None:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        """It holds nothing."""

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top, *rest = alias.name.split(".")
            imported = alias.name if alias.asname else top
            origin: ExternalImport | InternalImport = ExternalImport(imported)
            if top == self.own:
                origin = InternalImport(tuple(rest) if alias.asname else (), "")
            self.scope.bind(alias.asname or top, origin)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            origin = self._origin(node, alias.name)
            if alias.name == "*":
                self.scope.stars.append(origin)
            else:
                self.scope.bind(alias.asname or alias.name, origin)

    def _origin(self, node: ast.ImportFrom, name: str) -> ExternalImport | InternalImport:
        parts = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            kept = len(self.package) - node.level + 1
            return InternalImport(self.package[: max(kept, 0)] + parts, name)
        if parts[:1] == (self.own,):
            return InternalImport(parts[1:], name)
        return ExternalImport(f"{node.module}.{name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        name = node.target
        if isinstance(name, ast.Name):
            self._assign(name, ast.BinOp(ast.Name(name.id, ast.Load()), node.op, node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._assign(node.target, node.value)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._assign(item.optional_vars, item.context_expr)
        self.generic_visit(node)

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._iterate(node.target, node.iter)
        self.generic_visit(node)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        """A branch that is never taken does nothing; type checkers bind what nothing else does."""
        self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            self._visit_all(node.body if node.test.value else node.orelse)
            return
        self._visit_all(node.orelse)
        if not is_type_checking(node):
            self._visit_all(node.body)
            return
        names, calls, attributes = self.scope.names, len(self.calls), len(self.attributes)
        self.scope.names = {}
        self._visit_all(node.body)
        typing, self.scope.names = self.scope.names, names
        for name, bindings in typing.items():
            names.setdefault(name, bindings)
        del self.calls[calls:], self.attributes[attributes:]

    def visit_Try(self, node: ast.Try) -> None:
        """Importing from the kernel's `_ops` cannot fail: kbuild writes it."""
        handlers = [] if all(map(self._takes_from_ops, node.body)) else node.handlers
        self._visit_all([*node.body, *handlers, *node.orelse, *node.finalbody])

    visit_TryStar = visit_Try  # noqa: N815

    def _takes_from_ops(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.ImportFrom) and all(
            self._origin(node, alias.name) == InternalImport(OPS_MODULE, alias.name)
            and alias.name in _OF_OPS
            for alias in node.names
        )

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            match case.pattern:
                case ast.MatchAs(pattern=None, name=str(name)):
                    self.scope.bind(name, ExpressionBinding(node.subject, self.scope))
                case _:
                    self.visit(case.pattern)
            self._visit_all([case.guard, *case.body])

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.scope.bind(node.name, None)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self.functions:
            self.functions[-1].returns.append(node.value)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.elsewhere |= dict.fromkeys(node.names, self.scope.module)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            holders = [s for s in self.scope.outward() if s is not self.scope and name in s.names]
            self.scope.elsewhere[name] = holders[0] if holders else self.scope

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self.scope))
        match node:
            case ast.Call(func=ast.Attribute(ast.Name(name), method), args=[*_, given]):
                if how := _GROWING_METHODS.get(method):
                    self._grow(name, ast.List([given], ast.Load()) if how == "one" else given)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == self.own:
            self.attributes.append((node, self.scope))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        body = NameScope(self.scope)
        body.function = function = DefinitionBinding(node, self.scope, body)
        self.scope.bind(node.name, function)
        self._visit_all([*node.decorator_list, node.returns])
        self.functions.append(function)
        self._function(node.args, node.body, body)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        body = NameScope(self.scope)
        body.function = DefinitionBinding(node, self.scope, body, [node.body])
        self.lambdas[id(node)] = body.function
        self._function(node.args, [node.body], body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        body = NameScope(self.scope)
        body.owner = DefinitionBinding(node, self.scope, body)
        self.scope.bind(node.name, body.owner)
        self._visit_all([*node.decorator_list, *node.bases, *(k.value for k in node.keywords)])
        with self._within(body):
            self._visit_all(node.body)

    def _comprehension(self, node: Comprehension) -> None:
        self.bodies[id(node)] = body = NameScope(self.scope)
        for generator in node.generators:
            self.visit(generator.iter)
            with self._within(body):
                self._visit_all([generator.target, *generator.ifs])
                self._iterate(generator.target, generator.iter)
        with self._within(body):
            self._visit_all(
                [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            )

    visit_ListComp = _comprehension  # noqa: N815
    visit_SetComp = _comprehension  # noqa: N815
    visit_DictComp = _comprehension  # noqa: N815
    visit_GeneratorExp = _comprehension  # noqa: N815

    def _function(self, args: ast.arguments, body: Iterable[ast.AST], scope: NameScope) -> None:
        self._visit_all([*args.defaults, *args.kw_defaults])
        positional = [*args.posonlyargs, *args.args]
        instance = positional[0] if self.scope.owner and positional else None
        defaults = dict(zip(reversed(positional), reversed(args.defaults), strict=False))
        defaults |= {a: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d}
        for arg in [*positional, *args.kwonlyargs, args.vararg, args.kwarg]:
            if arg is not None and arg is instance:
                scope.bind(arg.arg, self.scope.owner)
            elif arg is not None:
                self._parameter(arg, defaults.get(arg), scope)
        with self._within(scope):
            self._visit_all(body)

    def _parameter(self, arg: ast.arg, default: ast.expr | None, scope: NameScope) -> None:
        if arg.annotation is not None:
            self.visit(arg.annotation)
            scope.bind(arg.arg, ExpressionBinding(arg.annotation, self.scope, instance=True))
        else:
            scope.bind(arg.arg, None)
        if default is not None:
            scope.bind(arg.arg, ExpressionBinding(default, self.scope))

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    @contextmanager
    def _within(self, scope: NameScope) -> Iterator[None]:
        outer, self.scope = self.scope, scope
        yield
        self.scope = outer

    def _iterate(self, target: ast.expr, iterated: ast.expr) -> None:
        if isinstance(iterated, ast.Tuple | ast.List | ast.Set):
            for element in iterated.elts:
                self._assign(target, element)
        else:
            self._assign(target, Element(of=iterated))

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.scope.bind(
                target.id, None if value is None else ExpressionBinding(value, self.scope)
            )
        elif isinstance(target, ast.Attribute) and value is not None:
            self._assign_attribute(target, value)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            held = ast.Name("object", ast.Load()) if value is None else value
            self._grow(target.value.id, ast.Dict([target.slice], [held]))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            for element, part in zip(
                target.elts, _unpacked_parts(value, len(target.elts)), strict=True
            ):
                self._assign(element, part)

    def _grow(self, name: str, value: ast.expr) -> None:
        """What is put into a container of that name is one more value of the name."""
        homes = [scope for scope in self.scope.outward() if name in scope.names]
        if homes:
            homes[0].bind(name, ExpressionBinding(value, self.scope))

    def _assign_attribute(self, target: ast.Attribute, value: ast.expr) -> None:
        """`self.name = value`, or the same on a class of this file."""
        if not isinstance(target.value, ast.Name):
            return
        for scope in self.scope.outward():
            for binding in scope.names.get(target.value.id, ()):
                if isinstance(binding, DefinitionBinding) and binding.body.owner is binding:
                    binding.body.bind(target.attr, ExpressionBinding(value, self.scope))


def _unpacked_parts(value: ast.expr | None, count: int) -> list[ast.expr | None]:
    """The elements of a literal tuple or list of that length, else subscripts of the value."""
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == count:
        return [None if isinstance(e, ast.Starred) else e for e in value.elts]
    if value is None:
        return [None] * count
    return [ast.Subscript(value, ast.Constant(at), ast.Load()) for at in range(count)]
