"""The modules of a package: the names that each makes public, and where these lead."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from errno import ENAMETOOLONG
from pathlib import Path as FilePath

from kbuild.public_api.model import PublicApiError, decorated
from kbuild.sources.binder import bind_names
from kbuild.sources.python_syntax import parse_source
from kbuild.sources.scopes import (
    Binding,
    DefinitionBinding,
    ExpressionBinding,
    ExternalImport,
    InternalImport,
    ModulePath,
    NameScope,
)

ALL = "__all__"
Elsewhere = Callable[[ast.expr], Iterable[str]]
"""The names behind an expression that stands for another module's `__all__`."""


def _no_names(_node: ast.expr) -> tuple[str, ...]:
    return ()


def listed_names(tree: ast.Module, elsewhere: Elsewhere = _no_names) -> tuple[str, ...] | None:
    """The names in a module's `__all__`, in order and once each; None when it has none."""
    names: list[str] | None = None
    for statement in _flattened(tree.body):
        match statement:
            case ast.Assign(targets=targets, value=value) if any(map(_is_all, targets)):
                names = list(_names_in(value, elsewhere, names))
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_all(target):
                names = list(_names_in(value, elsewhere, names))
            case ast.AugAssign(target=target, op=ast.Add(), value=value) if _is_all(target):
                names = [*(names or ()), *_names_in(value, elsewhere, names)]
            case ast.Expr(value=ast.Call(func=ast.Attribute(owner, method), args=[value])) if (
                _is_all(owner)
            ):
                names = _after_method(names or [], method, list(_names_in(value, elsewhere, names)))
    return None if names is None else tuple(dict.fromkeys(names))


def is_public(name: str, binding: object) -> bool:
    """True for a name that a module without `__all__` offers as its own."""
    return not name.startswith("_") and isinstance(binding, DefinitionBinding | InternalImport)


def _flattened(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in source order, those under `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=first, orelse=second):
                yield from _flattened([*first, *second])
            case ast.Try(body=first, handlers=handlers, orelse=second, finalbody=last):
                caught = [inner for handler in handlers for inner in handler.body]
                yield from _flattened([*first, *caught, *second, *last])
            case ast.With(body=first):
                yield from _flattened(first)


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == ALL


def _after_method(names: list[str], method: str, arguments: list[str]) -> list[str]:
    if method in {"append", "extend"}:
        return [*names, *arguments]
    if method == "remove":
        return [name for name in names if name not in arguments]
    return names


def _names_in(node: ast.expr, elsewhere: Elsewhere, own: Iterable[str] | None) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                yield from _names_in(element, elsewhere, own)
        case (
            ast.Starred(value=value)
            | ast.Call(func=ast.Name("list" | "tuple" | "sorted"), args=[value])
        ):
            yield from _names_in(value, elsewhere, own)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _names_in(left, elsewhere, own)
            yield from _names_in(right, elsewhere, own)
        case ast.Name() if _is_all(node):
            yield from own or ()
        case _:
            yield from elsewhere(node)


@dataclass(frozen=True)
class PackageModule:
    """A module of the package."""

    path: ModulePath
    tree: ast.Module
    scope: NameScope


Target = PackageModule | DefinitionBinding | ExpressionBinding
"""What a name leads to: a module, a definition, or an expression that says no more."""


class PackageModules:
    """The modules below one folder."""

    def __init__(self, root: FilePath, own: str) -> None:
        self.root = root
        self.own = own
        self._read: dict[ModulePath, PackageModule | None] = {}
        self._open: set[Binding] = set()

    def module(self, path: ModulePath) -> PackageModule | None:
        """The module, None when the package has none of that name.

        Raises:
            PublicApiError: it does not parse.
        """
        if path not in self._read:
            self._read[path] = self._parsed(path)
        return self._read[path]

    def public_names(self, module: PackageModule) -> tuple[str, ...]:
        """What the module makes public, see `exports`."""
        listed = listed_names(module.tree, lambda node: self._names_behind(node, module))
        return self._unlisted(module) if listed is None else listed

    def follow(self, name: str, scope: NameScope) -> Target | None:
        """What a name stands for as seen from a scope; None when that is outside the package."""
        return self._last(self._lookup(name, scope))

    def member(self, module: PackageModule, name: str) -> Target | None:
        """What an attribute of a module stands for."""
        return self._internal(InternalImport(module.path, name))

    def _parsed(self, path: ModulePath) -> PackageModule | None:
        folder = self.root.joinpath(*path)
        files = [(folder / "__init__.py", path)]
        if path:
            files.append((folder.with_name(f"{path[-1]}.py"), path[:-1]))
        for file, package in files:
            if _is_file(file):
                tree = self._tree(file)
                return PackageModule(path, tree, bind_names(tree, package, self.own).scope)
        return None

    def _tree(self, file: FilePath) -> ast.Module:
        name = file.relative_to(self.root).as_posix()
        try:
            return parse_source(file.read_bytes())
        except SyntaxError as error:
            place = f"{name}:{error.lineno}" if error.lineno else name
            message = f"{place}: does not parse: {error.msg}"
            raise PublicApiError(message, hint="correct it first") from error

    def _unlisted(self, module: PackageModule) -> tuple[str, ...]:
        names = module.scope.names.items()
        own = [name for name, bindings in names if is_public(name, bindings[-1])]
        return tuple(dict.fromkeys([*own, *self._starred(module)]))

    def _starred(self, module: PackageModule) -> Iterator[str]:
        for star in module.scope.stars:
            source = self.module(star.module) if isinstance(star, InternalImport) else None
            if source is not None and source is not module:
                yield from self.public_names(source)

    def _names_behind(self, node: ast.expr, module: PackageModule) -> Iterator[str]:
        """The names in `other.__all__`, or in what `from .other import __all__ as name` brought."""
        if isinstance(node, ast.Attribute) and node.attr == ALL:
            source = self._denoted(node.value, module.scope)
            if isinstance(source, PackageModule) and source is not module:
                yield from self.public_names(source)
        elif isinstance(node, ast.Name):
            for binding in module.scope.names.get(node.id, ()):
                if isinstance(binding, InternalImport) and binding.name == ALL:
                    origin = self.module(binding.module)
                    yield from self.public_names(origin) if origin else ()

    def _denoted(self, node: ast.expr, scope: NameScope) -> Target | None:
        if isinstance(node, ast.Name):
            return self.follow(node.id, scope)
        if isinstance(node, ast.Attribute):
            owner = self._denoted(node.value, scope)
            return self.member(owner, node.attr) if isinstance(owner, PackageModule) else None
        return None

    def _lookup(self, name: str, scope: NameScope) -> list[Binding]:
        for candidate in scope.outward():
            if bindings := candidate.names.get(name):
                return bindings
        return [
            InternalImport(star.module, name)
            for star in scope.module.stars
            if isinstance(star, InternalImport) and name != "*"
        ]

    def _last(self, bindings: Iterable[Binding]) -> Target | None:
        """The last of several bindings that leads to a definition, else to anything at all."""
        targets = [target for b in bindings if (target := self._binding(b)) is not None]
        definite = [target for target in targets if not isinstance(target, ExpressionBinding)]
        return (definite or targets or [None])[-1]

    def _binding(self, binding: Binding) -> Target | None:
        """What one binding leads to; nothing when it leads back to itself."""
        if binding in self._open or binding is None or isinstance(binding, ExternalImport):
            return None
        self._open.add(binding)
        try:
            if isinstance(binding, InternalImport):
                return self._internal(binding)
            if isinstance(binding, ExpressionBinding):
                return self._denoted(binding.node, binding.scope) or binding
            return None if _is_overload(binding) else binding
        finally:
            self._open.discard(binding)

    def _internal(self, origin: InternalImport) -> Target | None:
        module = self.module(origin.module)
        if module is None or not origin.name:
            return module
        target = self._last(self._lookup(origin.name, module.scope))
        return target or self.module((*origin.module, origin.name))


def _is_file(path: FilePath) -> bool:
    """False as well for a name from the code that is too long for any file."""
    try:
        return path.is_file()
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return False
        raise


def _is_overload(binding: DefinitionBinding) -> bool:
    """True for a `typing.overload`: the definition that counts follows."""
    return not isinstance(binding.node, ast.Lambda) and decorated(binding.node, "overload")
