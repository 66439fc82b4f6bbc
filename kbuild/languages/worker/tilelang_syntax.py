"""What the text of a function in TileLang says, without running it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError

_PRIM_FUNC = "prim_func"
_CONST, _EMPTY = "const", "empty"
_SHAPED = ("match_buffer", "make_tensor")
_TENSORS = ("Tensor", "StridedTensor", "Buffer")


def tree_of(function: Any, name: str, *, strict: bool = True) -> ast.AST:
    """The function's syntax tree; an empty one where it cannot be read, unless `strict`."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        return next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    except (OSError, TypeError, SyntaxError, StopIteration):
        if strict:
            raise RefusalError(f"the source of `{name}` cannot be read") from None
        return ast.Module([], [])


def has_program(tree: ast.AST) -> bool:
    """Whether there is a `T.prim_func` within."""
    return _program(tree) is not None


def inner_of(tree: ast.AST, function: FunctionType) -> ast.FunctionDef | None:
    """The `T.prim_func` within, or within the function whose result this one returns.

    Args:
        tree: of the function.
        function: knows what its names mean.
    """
    found = _program(tree)
    for called in _calls_returned(tree) if found is None else ():
        other = function.__globals__.get(called)
        if isinstance(other, FunctionType):
            found = found or _program(tree_of(other, called, strict=False))
    return found


def _program(tree: ast.AST) -> ast.FunctionDef | None:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node is tree:
            continue
        if any(_last(one) == _PRIM_FUNC for one in node.decorator_list):
            return node
    return None


def names(function: ast.FunctionDef) -> tuple[str, ...]:
    """Its parameters."""
    return tuple(one.arg for one in (*function.args.args, *function.args.kwonlyargs))


def sizes(function: ast.FunctionDef) -> frozenset[str]:
    """Names in the annotations of its parameters, and in the shapes that it gives pointers."""
    found = [one.annotation for one in function.args.args if one.annotation is not None]
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    found += [one.args[1] for one in calls if _last(one) in _SHAPED and one.args[1:]]
    nodes = (node for one in found for node in ast.walk(one))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


def dimensions(tree: ast.AST) -> Mapping[str, tuple[str, ...]]:
    """Tensor -> its dimensions where these are names, else empty texts."""
    found: dict[str, tuple[str, ...]] = {}
    for name, annotation in _typed(tree):
        shape = _shape(annotation)
        if shape is not None:
            found[name] = tuple(one.id if isinstance(one, ast.Name) else "" for one in shape)
    return found


def fractions(tree: ast.AST) -> frozenset[str]:
    """Parameters that are floating-point numbers, by their annotations."""
    typed = (node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation)
    return frozenset(
        one.arg for one in typed if one.annotation and "float" in _last(one.annotation)
    )


def consts(tree: ast.AST) -> Iterator[str]:
    """The names of `T.const("M, N")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node) == _CONST and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield from re.split(r"[\s,]+", first.value.strip())


def returned(tree: ast.AST) -> tuple[str, ...]:
    """Names that the function itself returns and `T.empty` gave."""
    made = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _last(node.value) == _EMPTY
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for value in _results(tree):
        items = value.elts if isinstance(value, ast.Tuple) else [value]
        return tuple(one.id for one in items if isinstance(one, ast.Name) and one.id in made)
    return ()


def _typed(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, node.annotation


def _shape(annotation: ast.AST) -> list[ast.expr] | None:
    """The dimensions of `T.Tensor[[M, N], dtype]` and `T.Tensor((M, N), dtype)`."""
    if isinstance(annotation, ast.Call) and _last(annotation) in _TENSORS and annotation.args:
        first = annotation.args[0]
    elif isinstance(annotation, ast.Subscript) and _last(annotation.value) in _TENSORS:
        whole = annotation.slice
        first = whole.elts[0] if isinstance(whole, ast.Tuple) and whole.elts else whole
    else:
        return None
    return first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]


def _results(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def _calls_returned(tree: ast.AST) -> Iterator[str]:
    for value in _results(tree):
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            yield value.func.id


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last(node.func)
    return getattr(node, "attr", getattr(node, "id", ""))
