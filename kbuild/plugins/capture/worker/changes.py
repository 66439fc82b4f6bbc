"""State of an author's modules that calls can change, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter

_MUTATORS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "popleft", "remove", "reverse", "setdefault", "sort", "update", "__setitem__",
}  # fmt: skip
_CREATORS = {"__init__", "__new__", "__post_init__", "__setstate__", "__init_subclass__"}
_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Scope = (*_Function, ast.ClassDef)


@dataclass
class Changes:
    """State that the functions of one module change; names of attributes are dotted."""

    rebound: dict[str, int] = field(default_factory=dict)
    """Global that a function assigns -> the line."""
    mutated: dict[str, int] = field(default_factory=dict)
    """Container that a function changes -> the line."""
    attributes: dict[tuple[str, str], int] = field(default_factory=dict)
    """Object or class, and its attribute that a function sets -> the line."""
    own: dict[tuple[str, str], int] = field(default_factory=dict)
    """Class, and the attribute that its methods set -> the line."""
    remembered: set[str] = field(default_factory=set)
    """Globals and containers that functions only fill with what they compute once."""


def changes_of(tree: ast.Module) -> Changes:
    """Collect the state that a module's functions change."""
    changes = Changes()
    others: set[str] = set()
    for owner, function in _functions(tree):
        body = function.body if isinstance(function.body, list) else [function.body]
        nodes = [node for statement in body for node in _inside(statement)]
        parameters = {a.arg for a in _parameters(function.args)}
        shared = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
        bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local = (parameters | bound) - shared
        asked = {name for node in nodes for name in _asked(node)}
        for node in nodes:
            # The name is empty for what has no dotted name, such as `f().append`.
            for name, line, values in filter(itemgetter(0), _written(node)):
                root, _, attribute = name.rpartition(".")
                first = name.partition(".")[0]
                # Functions assign a global only after `global`, but change a container without it.
                if not root and (first in shared if line > 0 else first not in local):
                    table = changes.rebound if line > 0 else changes.mutated
                    table.setdefault(name, abs(line))
                    # A cache is asked before it is filled, and what it gets is computed, not an
                    # argument itself.
                    is_given = any(_names(value) & parameters for value in values)
                    if name not in asked or is_given or not values:
                        others.add(name)
                    changes.remembered.add(name)
                elif root and first not in local and line > 0:
                    changes.attributes.setdefault((root, attribute), line)
                elif root and line < 0 and first not in local:
                    changes.mutated.setdefault(name, -line)
                    others.add(name)
                elif owner and root == _first(function.args) and not _is_creator(function):
                    changes.own.setdefault((owner, attribute), abs(line))
    changes.remembered -= others
    return changes


def _is_creator(function: ast.AST) -> bool:
    return getattr(function, "name", "") in _CREATORS


def _functions(
    tree: ast.AST, owner: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            yield owner, node
            # A function inside of a method has no `self` of its own, so the owner is dropped.
            yield from _functions(node)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, node.name)
        else:
            yield from _functions(node, owner)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and its parts, without functions within it."""
    yield node
    if not isinstance(node, _Scope):
        for child in ast.iter_child_nodes(node):
            yield from _inside(child)


def _written(node: ast.AST) -> Iterator[tuple[str, int, list[ast.expr]]]:
    """Targets that a node writes to: dotted name, line (negative: changed in place), values."""
    targets: list[ast.expr] = []
    values: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets, values = node.targets, [node.value]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
        # `X += 1` has no value of its own: it depends on what `X` was, so it fills no cache.
        values = [node.value] if node.value is not None and isinstance(node, ast.AnnAssign) else []
    elif isinstance(node, ast.Delete):
        targets = node.targets
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name, node.lineno, []
    elif isinstance(node, ast.Call):
        yield from _called(node)
    for target in targets:
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            if isinstance(part, ast.Subscript) and (name := _dotted(part.value)):
                yield name, -part.lineno, values
            elif name := _dotted(part):
                yield name, part.lineno, values


def _called(node: ast.Call) -> Iterator[tuple[str, int, list[ast.expr]]]:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in _MUTATORS:
        # Of the mutators only `setdefault` can fill a cache: it asks before it writes.
        kept = node.args[1:] if function.attr == "setdefault" else []
        yield _dotted(function.value), -node.lineno, kept
    elif isinstance(function, ast.Name) and function.id == "setattr" and len(node.args) > 1:
        name, attribute = _dotted(node.args[0]), node.args[1]
        if name and isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
            yield f"{name}.{attribute.value}", node.lineno, []


def _asked(node: ast.AST) -> Iterator[str]:
    """Names that a node checks before a value is computed: `key in X`, `X is None`."""
    if isinstance(node, ast.Compare):
        for side in (node.left, *node.comparators):
            if name := _dotted(side):
                yield name
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        if name := _dotted(node.operand):
            yield name
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield _dotted(node.func.value) if node.func.attr in ("get", "setdefault") else ""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (root := _dotted(node.value)):
        return f"{root}.{node.attr}"
    return ""


def _names(node: ast.AST) -> set[str]:
    """The names that a value is, or is a tuple of; not those that it is computed from."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return {name for part in node.elts for name in _names(part)}
    return {node.id} if isinstance(node, ast.Name) else set()


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    more = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _first(arguments: ast.arguments) -> str:
    return next((argument.arg for argument in (*arguments.posonlyargs, *arguments.args)), "")


# answers at import


def dependent_names(tree: ast.Module, lines: set[int]) -> dict[str, int]:
    """Globals of a module whose values depend on what some of its lines ask -> such a line."""
    names: dict[str, int] = {}
    for statement in _statements(tree.body):
        if isinstance(statement, _Scope):
            continue
        # The test of an `if` decides on the names in all branches, whose statements follow by
        # themselves.
        decisive = statement.test if isinstance(statement, ast.If) else statement
        span = range(decisive.lineno, (decisive.end_lineno or decisive.lineno) + 1)
        line = next((line for line in sorted(lines) if line in span), 0)
        loaded = {n.id for n in ast.walk(decisive) if isinstance(n, ast.Name)} & names.keys()
        line = line or next((names[name] for name in sorted(loaded)), 0)
        if line:
            names |= {name: names.get(name, line) for name in _bound(statement)}
    return names


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements; bodies in place of `try` and `with`, and branches of `if` after it."""
    for statement in body:
        if isinstance(statement, (ast.Try, ast.With)):
            yield from _statements(statement.body)
            for handler in getattr(statement, "handlers", ()):
                yield from _statements(handler.body)
            yield from _statements(getattr(statement, "orelse", []))
        else:
            yield statement
            if isinstance(statement, ast.If):
                yield from _statements([*statement.body, *statement.orelse])


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in _inside(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
