"""The dtypes that a TileLang source declares for its tensors and numbers.

Tensors of an eager function are annotated in its body (`x: T.Tensor[[n], T.float32]`), those of a
`T.prim_func` in its signature. `T.empty` makes the tensors that are returned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kbuild.ops.declared_types import DeclaredType, dtype_of, module_values

_TENSORS = {"Tensor": 1, "Buffer": 1, "StridedTensor": 2}
"""Name of an annotation of tensors -> index of the dtype in its arguments."""
_PROGRAM = "prim_func"


def read_declared_types(tree: ast.Module, function: ast.FunctionDef) -> tuple[DeclaredType, ...]:
    """Return declarations that are unambiguous and do not depend on a parameter's value."""
    values = module_values(tree) | _assigned(function)
    for name in _parameters(function):
        values[name] = ast.Constant(None)
    declared_by_name: dict[str, list[DeclaredType]] = {}
    programs = (node for node in ast.walk(function) if node is not function)
    inner = [node for node in programs if isinstance(node, ast.FunctionDef) and _is_program(node)]
    for one in (function, *inner):
        for declared in _declared(one, values):
            declared_by_name.setdefault(declared.name, []).append(declared)
    return tuple(
        known[0] for known in declared_by_name.values() if len({one.dtype for one in known}) == 1
    )


def _declared(function: ast.FunctionDef, values: Mapping[str, ast.expr]) -> Iterator[DeclaredType]:
    for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        if argument.annotation is not None:
            yield from _annotated(argument.arg, argument.annotation, values)
    for node in _own_nodes(function):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from _annotated(node.target.id, node.annotation, values)
        elif isinstance(node, ast.Assign) and _is_empty(node.value):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield from _tensor(target.id, node.value, 1, values)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield all nodes of a function, except those of functions and classes inside of it."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield node
            waiting += ast.iter_child_nodes(node)


def _annotated(
    name: str, annotation: ast.expr, values: Mapping[str, ast.expr]
) -> Iterator[DeclaredType]:
    kind = annotation.func if isinstance(annotation, ast.Call) else annotation
    kind = kind.value if isinstance(kind, ast.Subscript) else kind
    place = _TENSORS.get(kind.attr) if isinstance(kind, ast.Attribute) else None
    if place is not None:
        yield from _tensor(name, annotation, place, values)
    elif isinstance(annotation, ast.Attribute) and (dtype := dtype_of(annotation, values)):
        yield DeclaredType(name, dtype, annotation.lineno, is_tensor=False)


def _tensor(
    name: str, node: ast.expr, place: int, values: Mapping[str, ast.expr]
) -> Iterator[DeclaredType]:
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        named = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
        parts = [*node.args[:place], *named] if named else node.args
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        parts = node.slice.elts
    dtype = dtype_of(parts[place], values) if len(parts) > place else None
    if dtype is not None:
        yield DeclaredType(name, dtype, node.lineno, is_tensor=True)


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "empty"


def _is_program(function: ast.FunctionDef) -> bool:
    marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in function.decorator_list)
    return any(getattr(mark, "attr", getattr(mark, "id", "")) == _PROGRAM for mark in marks)


def _assigned(function: ast.FunctionDef) -> dict[str, ast.expr]:
    return module_values(ast.Module(function.body, []))


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
