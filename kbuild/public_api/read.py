"""Reads the public API of a package's folder; classes inherit from bases inside the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeGuard

from kbuild.public_api.model import (
    LAYERS,
    Definition,
    FunctionParameter,
    ParameterKind,
    PublicApi,
    PublicApiError,
    PublicClass,
    PublicFunction,
    decorated,
    function_of,
    lambda_of,
    source_text,
)
from kbuild.public_api.modules import PackageModule, PackageModules, Target
from kbuild.sources.scopes import DefinitionBinding, ExpressionBinding

_CONSTRUCTORS = ("__init__", "__new__")
_CALLED = "__call__"
_RECORDS = {"NamedTuple"}
_PROPERTIES = ("property", "cached_property", "getter", "setter", "deleter")
_PLAIN_BASES = {"object", "ABC"}


def class_of(target: DefinitionBinding, name: str, modules: PackageModules) -> PublicClass:
    """The class under a name that may be another than its own."""
    lineage = list(_inheritance(target, modules, ()))
    members: dict[str, ast.stmt] = {}
    for node in lineage:
        members = {**dict(_class_members(node)), **members}
    public = {key: member for key, member in members.items() if _is_public(key)}
    return PublicClass(
        name,
        _constructor(lineage, members, name),
        tuple(_method(m, key) for key, m in public.items() if _is_method(m)),
        {key: _value_text(member) for key, member in public.items() if not _is_method(member)},
        ast.get_docstring(lineage[0]) or "",
    )


def autograd_forward(target: Target | None, name: str) -> PublicFunction | None:
    """What `Class.apply` takes: the parameters of an `autograd.Function`'s static `forward`.

    The context comes first, unless `setup_context` takes it.
    """
    if not isinstance(target, DefinitionBinding) or not isinstance(target.node, ast.ClassDef):
        return None
    members = dict(_class_members(target.node))
    forward = members.get("forward")
    if not isinstance(forward, Definition):
        return None
    return function_of(forward, name, skip=0 if "setup_context" in members else 1)


def _inheritance(
    target: DefinitionBinding, modules: PackageModules, seen: tuple[DefinitionBinding, ...]
) -> Iterator[ast.ClassDef]:
    """The class, then its bases inside the package, nearest first."""
    if not isinstance(target.node, ast.ClassDef) or target in seen:
        return
    yield target.node
    for base in target.node.bases:
        parent = modules.follow(base.id, target.scope) if isinstance(base, ast.Name) else None
        if isinstance(parent, DefinitionBinding):
            yield from _inheritance(parent, modules, (*seen, target))


def _class_members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    for statement in node.body:
        if isinstance(statement, Definition):
            if not decorated(statement, "overload"):
                yield statement.name, statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement
        elif isinstance(statement, ast.Assign):
            names = (t.id for t in statement.targets if isinstance(t, ast.Name))
            yield from ((name, statement) for name in names)


def _is_public(name: str) -> bool:
    return name == _CALLED or not name.startswith("_")


def _is_method(member: ast.stmt) -> TypeGuard[Definition]:
    return isinstance(member, Definition) and not decorated(member, *_PROPERTIES)


def _method(member: Definition, name: str) -> PublicFunction:
    return function_of(member, name, skip=0 if decorated(member, "staticmethod") else 1)


def _value_text(member: ast.stmt) -> str:
    return source_text(member.value) if isinstance(member, ast.Assign | ast.AnnAssign) else ""


def _constructor(
    lineage: list[ast.ClassDef], members: dict[str, ast.stmt], name: str
) -> PublicFunction | None:
    own = next((members[key] for key in _CONSTRUCTORS if key in members), None)
    if isinstance(own, Definition):
        return function_of(own, name, skip=1)
    if _is_dataclass(lineage[0]):
        return PublicFunction(name, tuple(chain.from_iterable(map(_fields, reversed(lineage)))))
    known = {node.name for node in lineage} | _PLAIN_BASES
    has_outer_base = any(ast.unparse(base) not in known for node in lineage for base in node.bases)
    return None if has_outer_base else PublicFunction(name, ())


def _is_dataclass(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return decorated(node, "dataclass") or bool(bases & _RECORDS)


def _fields(node: ast.ClassDef) -> Iterator[FunctionParameter]:
    if not _is_dataclass(node):
        return
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            annotation = source_text(statement.annotation)
            if not annotation.rpartition(".")[2].startswith("ClassVar"):
                default = None if statement.value is None else source_text(statement.value)
                yield FunctionParameter(
                    statement.target.id, ParameterKind.NORMAL, annotation, default
                )


SOURCE_FOLDERS = ("torch-ext", "tvm-ffi-ext")
_INIT = "__init__.py"
_OPS = "ops"
# Expressions whose value may be called; all others are values.
_MAYBE_CALLED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.IfExp, ast.BoolOp)


def find_package(project_root: Path, python_name: str) -> Path | None:
    """Where a project keeps the kernel's Python package; None when it has none."""
    folders = (project_root / folder / python_name for folder in SOURCE_FOLDERS)
    return next((folder for folder in folders if (folder / _INIT).is_file()), None)


def read_public_api(package: Path, own: str = "") -> PublicApi:
    """What a package makes public.

    Args:
        package: the folder of `__init__.py`: in a project, or a built or published variant. In
            variants of the old layout the package is a folder inside, which is found as well.
        own: the package's name, when that is not the folder's: absolute imports of it are followed.

    Raises:
        PublicApiError: there is no package, or a module that it offers names of does not parse.
    """
    inner = sorted(package.glob(f"*/{_INIT}"))
    folder = inner[0].parent if not (package / _INIT).is_file() and len(inner) == 1 else package
    modules = PackageModules(folder, own or folder.name)
    try:
        top = modules.module(())
        if top is None:
            raise PublicApiError(f"`{package}` has no `{_INIT}`", hint="is it a kernel's package?")
        return _PublicApiReader(modules).surface(top)
    except RecursionError as error:
        message = f"`{package}`: what it makes public is nested too deeply to be followed"
        raise PublicApiError(message, hint="shorten its expressions") from error


class _PublicApiReader:
    """One package's public names, each put where it belongs."""

    def __init__(self, modules: PackageModules) -> None:
        self.modules = modules

    def surface(self, top: PackageModule) -> PublicApi:
        names = self.modules.public_names(top)
        entries = {name: self._entry(name, top) for name in names}
        layers = self.modules.member(top, LAYERS) if LAYERS in names else None
        return PublicApi(
            names,
            tuple(entry for entry in entries.values() if isinstance(entry, PublicFunction)),
            tuple(entry for entry in entries.values() if isinstance(entry, PublicClass)),
            self._layers(layers) if isinstance(layers, PackageModule) else (),
            tuple(name for name, entry in entries.items() if entry is None),
            ast.get_docstring(top.tree) or "",
        )

    def _layers(self, module: PackageModule) -> tuple[PublicClass, ...]:
        """Its own public classes, and those that it makes public from elsewhere."""
        own = [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]
        names = [*(n for n in own if not n.startswith("_")), *self.modules.public_names(module)]
        entries = (self._entry(name, module) for name in dict.fromkeys(names))
        return tuple(layer for entry in entries if (layer := _as_layer(entry)) is not None)

    def _entry(self, name: str, module: PackageModule) -> PublicFunction | PublicClass | None:
        """What is known of a public name; None when it is neither called nor a class."""
        target = self.modules.member(module, name)
        if isinstance(target, PackageModule):
            return None
        if isinstance(target, DefinitionBinding):
            if isinstance(target.node, ast.ClassDef):
                return class_of(target, name, self.modules)
            if isinstance(target.node, ast.Lambda):
                return lambda_of(target.node, name)
            return function_of(target.node, name)
        if isinstance(target, ExpressionBinding):
            return self._value(target, name)
        return None if name == _OPS else PublicFunction(name, None)

    def _value(self, target: ExpressionBinding, name: str) -> PublicFunction | None:
        node = target.node
        if isinstance(node, ast.Lambda):
            return lambda_of(node, name)
        if not isinstance(node, _MAYBE_CALLED):
            return None
        function = None
        match node:
            case ast.Attribute(ast.Name(owner), "apply"):
                function = autograd_forward(self.modules.follow(owner, target.scope), name)
        return function or PublicFunction(name, None)


def _as_layer(entry: PublicFunction | PublicClass | None) -> PublicClass | None:
    """A layer is a class, also when its definition was not found."""
    if isinstance(entry, PublicFunction) and entry.parameters is None:
        return PublicClass(entry.name)
    return entry if isinstance(entry, PublicClass) else None
