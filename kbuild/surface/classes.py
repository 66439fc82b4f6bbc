"""From a class's definition to a `Class`; bases inside the package add what they have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from typing import TypeGuard

from kbuild.checks.readers.scopes import Defined
from kbuild.surface.model import Class, Function, Kind, Parameter
from kbuild.surface.modules import Modules, Target
from kbuild.surface.signature import Definition, decorated, function_of, text_of

_CONSTRUCTORS = ("__init__", "__new__")
_CALLED = "__call__"
_RECORDS = {"NamedTuple"}
_PROPERTIES = ("property", "cached_property", "getter", "setter", "deleter")
_PLAIN_BASES = {"object", "ABC"}


def class_of(target: Defined, name: str, modules: Modules) -> Class:
    """The class under a name that may be another than its own."""
    lineage = list(_lineage(target, modules, ()))
    members: dict[str, ast.stmt] = {}
    for node in lineage:
        members = {**dict(_members(node)), **members}
    public = {key: member for key, member in members.items() if _is_public(key)}
    return Class(
        name,
        _constructor(lineage, members, name),
        tuple(_method(m, key) for key, m in public.items() if _is_method(m)),
        {key: _value(member) for key, member in public.items() if not _is_method(member)},
        ast.get_docstring(lineage[0]) or "",
    )


def forward_of(target: Target | None, name: str) -> Function | None:
    """What `Class.apply` takes: the parameters of an `autograd.Function`'s static `forward`.

    The context comes first, unless `setup_context` takes it.
    """
    if not isinstance(target, Defined) or not isinstance(target.node, ast.ClassDef):
        return None
    members = dict(_members(target.node))
    forward = members.get("forward")
    if not isinstance(forward, Definition):
        return None
    return function_of(forward, name, skip=0 if "setup_context" in members else 1)


def _lineage(
    target: Defined, modules: Modules, seen: tuple[Defined, ...]
) -> Iterator[ast.ClassDef]:
    """The class, then its bases inside the package, nearest first."""
    if not isinstance(target.node, ast.ClassDef) or target in seen:
        return
    yield target.node
    for base in target.node.bases:
        found = modules.follow(base.id, target.scope) if isinstance(base, ast.Name) else None
        if isinstance(found, Defined):
            yield from _lineage(found, modules, (*seen, target))


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
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


def _method(member: Definition, name: str) -> Function:
    return function_of(member, name, skip=0 if decorated(member, "staticmethod") else 1)


def _value(member: ast.stmt) -> str:
    return text_of(member.value) if isinstance(member, ast.Assign | ast.AnnAssign) else ""


def _constructor(
    lineage: list[ast.ClassDef], members: dict[str, ast.stmt], name: str
) -> Function | None:
    own = next((members[key] for key in _CONSTRUCTORS if key in members), None)
    if isinstance(own, Definition):
        return function_of(own, name, skip=1)
    if _is_record(lineage[0]):
        return Function(name, tuple(chain.from_iterable(map(_fields, reversed(lineage)))))
    return None if _has_outer_base(lineage) else Function(name, ())


def _has_outer_base(lineage: list[ast.ClassDef]) -> bool:
    known = {node.name for node in lineage} | _PLAIN_BASES
    return any(ast.unparse(base) not in known for node in lineage for base in node.bases)


def _is_record(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return decorated(node, "dataclass") or bool(bases & _RECORDS)


def _fields(node: ast.ClassDef) -> Iterator[Parameter]:
    if not _is_record(node):
        return
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            annotation = text_of(statement.annotation)
            if not annotation.rpartition(".")[2].startswith("ClassVar"):
                default = None if statement.value is None else text_of(statement.value)
                yield Parameter(statement.target.id, Kind.NORMAL, annotation, default)
