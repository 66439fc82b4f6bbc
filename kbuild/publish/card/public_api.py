"""The functions, classes and layers that a package makes public, as its card lists them.

Reads the source and imports nothing. Public are the names in `__all__`; without it, those that the
package defines or imports from its own modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.publish.card.model import CardError, PublicApi, PublicClass, PublicFunction
from kbuild.publish.card.signatures import (
    Function,
    function_of,
    is_decorated,
    lambda_of,
    parameter_text,
)
from kbuild.sources.python_syntax import parse_source

_INIT = "__init__.py"
_ALL = "__all__"
_LAYERS = "layers"
_OPS = "ops"
_PROPERTIES = ("property", "cached_property", "getter", "setter", "deleter")
_CALLABLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.IfExp, ast.BoolOp)
"""Expressions whose value may be a function; all others are plain values."""
ModulePath = tuple[str, ...]


@dataclass(frozen=True)
class _Import:
    """A name of another module of the package, or that module itself without a name."""

    module: ModulePath
    name: str


_Target = Function | ast.ClassDef | ast.expr | _Import


@dataclass
class _PackageModule:
    """The names of one module of the package."""

    tree: ast.Module
    names: dict[str, list[_Target]] = field(default_factory=dict)
    stars: list[ModulePath] = field(default_factory=list)


def find_package(project_root: Path, python_name: str) -> Path | None:
    """The folder of a project's Python package; None when it has none."""
    roots = dict.fromkeys(framework.package_root for framework in FRAMEWORKS.load())
    folders = (project_root / root / python_name for root in roots)
    return next((folder for folder in folders if (folder / _INIT).is_file()), None)


def read_public_api(package: Path) -> PublicApi:
    """Read what the package in the folder `package` makes public.

    Raises:
        CardError: a module that it offers names of does not parse.
    """
    try:
        return _PackageReader(package).public_api()
    except RecursionError as error:
        message = f"`{package}`: what it makes public is nested too deeply to be read"
        raise CardError(message, hint="shorten its expressions") from error


class _PackageReader:
    """Follows the names of one package from module to module."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[ModulePath, _PackageModule | None] = {}
        self.public: dict[ModulePath, list[str]] = {}
        self.members: dict[tuple[ModulePath, str], _Target | None] = {}
        """Targets that were followed; None for one in progress, so that circles end."""

    def public_api(self) -> PublicApi:
        """Everything that the package makes public, in the order in which it lists it."""
        top = self._module(())
        if top is None:
            return PublicApi()
        names = self._public_names(())
        entries = [self._entry((), name) for name in names]
        layers = self._module((_LAYERS,)) if _LAYERS in names else None
        return PublicApi(
            tuple(names),
            tuple(entry for entry in entries if isinstance(entry, PublicFunction)),
            tuple(entry for entry in entries if isinstance(entry, PublicClass)),
            () if layers is None else tuple(self._layers(layers)),
            ast.get_docstring(top.tree) or "",
        )

    def _layers(self, module: _PackageModule) -> Iterator[PublicClass]:
        """The public classes of the module `layers`, and those that it makes public."""
        own = [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]
        public = [name for name in own if not name.startswith("_")]
        for name in dict.fromkeys([*public, *self._public_names((_LAYERS,))]):
            entry = self._entry((_LAYERS,), name)
            if isinstance(entry, PublicClass):
                yield entry
            elif isinstance(entry, PublicFunction) and entry.parameters is None:
                yield PublicClass(name)

    def _module(self, path: ModulePath) -> _PackageModule | None:
        if path not in self.modules:
            self.modules[path] = self._read(path)
        return self.modules[path]

    def _read(self, path: ModulePath) -> _PackageModule | None:
        folder = self.root.joinpath(*path)
        candidates = [(folder / _INIT, path)]
        if path:
            candidates.append((folder.with_name(f"{path[-1]}.py"), path[:-1]))
        for file, package in candidates:
            try:
                source = file.read_bytes()
            except OSError:  # not there, or the name is too long for a file
                continue
            name = file.relative_to(self.root).as_posix()
            try:
                tree = parse_source(source)
            except SyntaxError as error:
                place = f"{name}:{error.lineno}" if error.lineno else name
                message = f"{place}: does not parse: {error.msg}"
                raise CardError(message, hint="correct it first") from error
            return _bound(tree, package, self.root.name)
        return None

    def _public_names(self, path: ModulePath) -> list[str]:
        if path not in self.public:
            # Empty while it is read: modules may import each other's names.
            self.public[path] = []
            module = self._module(path)
            names = self._names_of(path, module) if module is not None else ()
            self.public[path] = list(dict.fromkeys(names))
        return self.public[path]

    def _names_of(self, path: ModulePath, module: _PackageModule) -> Iterator[str]:
        if _ALL in module.names:
            for target in module.names[_ALL]:
                yield from self._listed_names(path, target)
            return
        for name, targets in module.names.items():
            if not name.startswith("_") and not isinstance(targets[-1], ast.expr):
                yield name
        for star in module.stars:
            yield from self._public_names(star)

    def _listed_names(self, path: ModulePath, target: _Target) -> Iterator[str]:
        """The texts of a part of `__all__`, and the lists of other modules that it includes."""
        if isinstance(target, _Import):
            yield from self._public_names(target.module)
            return
        for node in _in_order(target):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.Attribute) and node.attr == _ALL:
                source = self._follow(path, node.value)
                if isinstance(source, _Import):
                    yield from self._public_names(source.module)
            elif isinstance(node, ast.Name) and node.id != _ALL:
                module = self._module(path)
                for one in module.names.get(node.id, ()) if module is not None else ():
                    if isinstance(one, _Import) and one.name == _ALL:
                        yield from self._public_names(one.module)

    def _member(self, path: ModulePath, name: str) -> _Target | None:
        """The definition of a module's name, a module, or an expression that says no more."""
        if (path, name) not in self.members:
            self.members[path, name] = None
            self.members[path, name] = self._definition(path, name)
        return self.members[path, name]

    def _definition(self, path: ModulePath, name: str) -> _Target | None:
        module = self._module(path)
        if module is None:
            return None
        targets = module.names.get(name) or [_Import(star, name) for star in module.stars]
        known = [
            definition for one in targets if (definition := self._follow(path, one)) is not None
        ]
        definite = [target for target in known if not isinstance(target, ast.expr)]
        if not known and self._module((*path, name)) is not None:
            return _Import((*path, name), "")
        return (definite or known or [None])[-1]

    def _follow(self, path: ModulePath, target: _Target) -> _Target | None:
        match target:
            case _Import(module=module, name=name) if name:
                return self._member(module, name)
            case ast.Name(id=name):
                return self._member(path, name) or target
            case ast.Attribute(value=owner, attr=name):
                source = self._follow(path, owner)
                if isinstance(source, _Import):
                    return self._member(source.module, name) or target
            case _:
                pass
        return target

    def _entry(self, path: ModulePath, name: str) -> PublicFunction | PublicClass | None:
        """The card's entry for a public name; None for a module or a value."""
        target = self._member(path, name)
        is_value = isinstance(target, ast.expr) and not isinstance(target, _CALLABLE)
        entry: PublicFunction | PublicClass | None = None
        match target:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                entry = function_of(target, name)
            case ast.ClassDef():
                entry = self._class(path, target, name)
            case ast.Attribute(value=owner, attr="apply"):
                entry = self._autograd_function(path, owner, name)
            case ast.Lambda():
                entry = lambda_of(target, name)
            case _ if not is_value and not isinstance(target, _Import) and name != _OPS:
                entry = PublicFunction(name)
            case _:
                pass
        return entry

    def _autograd_function(self, path: ModulePath, owner: ast.expr, name: str) -> PublicFunction:
        """`Class.apply` takes what `forward` takes after the context."""
        target = self._follow(path, owner)
        members = _members(target) if isinstance(target, ast.ClassDef) else {}
        forward = members.get("forward")
        if not isinstance(forward, Function):
            return PublicFunction(name)
        # With `setup_context`, `forward` does not get the context.
        return function_of(forward, name, skip=0 if "setup_context" in members else 1)

    def _class(self, path: ModulePath, node: ast.ClassDef, name: str) -> PublicClass:
        members: dict[str, ast.stmt] = {}
        lineage = list(self._lineage(path, node))
        for ancestor in reversed(lineage):
            members |= _members(ancestor)
        public = {k: m for k, m in members.items() if k == "__call__" or not k.startswith("_")}
        methods = {k: m for k, m in public.items() if isinstance(m, Function)}
        values = {
            key: ast.unparse(member.value)
            for key, member in public.items()
            if isinstance(member, ast.Assign | ast.AnnAssign) and member.value is not None
        }
        return PublicClass(
            name,
            _constructor(lineage, members, name),
            tuple(
                function_of(member, key, skip=0 if is_decorated(member, "staticmethod") else 1)
                for key, member in methods.items()
                if not is_decorated(member, *_PROPERTIES)
            ),
            values,
            ast.get_docstring(node) or "",
        )

    def _lineage(
        self, path: ModulePath, node: ast.ClassDef, seen: tuple[ast.ClassDef, ...] = ()
    ) -> Iterator[ast.ClassDef]:
        """The class and its bases inside the package, nearest first."""
        yield node
        for base in node.bases:
            parent = self._follow(path, base)
            if isinstance(parent, ast.ClassDef) and parent not in (node, *seen):
                yield from self._lineage(path, parent, (*seen, node))


def _bound(tree: ast.Module, package: ModulePath, own: str) -> _PackageModule:
    """The names that a module binds at its top level, in branches as well."""
    module = _PackageModule(tree)
    for node in _statements(tree.body):
        for name, target in _bindings(node):
            module.names.setdefault(name, []).append(target)
        if isinstance(node, ast.ImportFrom) and (origin := _origin(node, package, own)) is not None:
            for alias in node.names:
                if alias.name == "*":
                    module.stars.append(origin)
                else:
                    targets = module.names.setdefault(alias.asname or alias.name, [])
                    targets.append(_Import(origin, alias.name))
    return module


def _bindings(node: ast.stmt) -> Iterator[tuple[str, _Target]]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if not is_decorated(node, "overload"):
                yield name, node
        case ast.ClassDef(name=name):
            yield name, node
        case ast.Assign(targets=targets, value=value):
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=[value])):
            if name == _ALL:  # `__all__.append("relu")`
                yield name, value
        case _:
            pass


def _origin(node: ast.ImportFrom, package: ModulePath, own: str) -> ModulePath | None:
    """The module of the package that names are imported from; None for another package's."""
    parts = tuple((node.module or "").split(".")) if node.module else ()
    if node.level == 0:
        return parts[1:] if parts[:1] == (own,) else None
    above = node.level - 1
    return None if above > len(package) else (*package[: len(package) - above], *parts)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in source order, those under `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=first, orelse=second):
                yield from _statements([*first, *second])
            case ast.Try(body=first, handlers=handlers, orelse=second, finalbody=last):
                caught = [inner for handler in handlers for inner in handler.body]
                yield from _statements([*first, *caught, *second, *last])
            case ast.With(body=first):
                yield from _statements(first)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _members(node: ast.ClassDef) -> dict[str, ast.stmt]:
    members: dict[str, ast.stmt] = {}
    for statement in node.body:
        for name, _ in _bindings(statement):
            members[name] = statement
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            members[statement.target.id] = statement
    return members


def _constructor(
    lineage: list[ast.ClassDef], members: dict[str, ast.stmt], name: str
) -> PublicFunction | None:
    """The constructor's signature; None when a base outside the package decides it."""
    own = members.get("__init__") or members.get("__new__")
    if isinstance(own, Function):
        return function_of(own, name, skip=1)
    if is_decorated(lineage[0], "dataclass"):
        fields = [
            statement
            for node in reversed(lineage)
            for statement in node.body
            if isinstance(statement, ast.AnnAssign)
            and "ClassVar" not in ast.unparse(statement.annotation)
        ]
        texts = tuple(
            parameter_text(ast.unparse(field.target), field.annotation, field.value)
            for field in fields
        )
        required = tuple(ast.unparse(field.target) for field in fields if field.value is None)
        return PublicFunction(name, texts, required)
    known = {node.name for node in lineage} | {"object"}
    has_other_base = any(ast.unparse(base) not in known for node in lineage for base in node.bases)
    return None if has_other_base else PublicFunction(name, ())
