"""Analyses the syntax of TileLang functions without running them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from kbuild.dsl.worker.protocol import RefusalError

_PRIM_FUNC = "prim_func"
_CONST, _EMPTY = "const", "empty"
_SHAPED = ("match_buffer", "make_tensor")
_TENSORS = ("Tensor", "StridedTensor", "Buffer")


def tree_of(function: Any, name: str, *, strict: bool = True) -> ast.AST:
    """Syntax tree of a function; an empty one if it cannot be read, unless `strict`."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        return next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    except (OSError, TypeError, SyntaxError, StopIteration):
        if strict:
            raise RefusalError(f"the source of `{name}` cannot be read") from None
        return ast.Module([], [])


def has_program(tree: ast.AST) -> bool:
    """True if a `T.prim_func` is defined inside."""
    return _program(tree) is not None


def inner_of(tree: ast.AST, function: FunctionType) -> ast.FunctionDef | None:
    """The `T.prim_func` inside, or inside of the function whose result this one returns."""
    program = _program(tree)
    for _, other in _called(tree, function) if program is None else ():
        program = program or _program(tree_of(other, other.__name__, strict=False))
    return program


def _called(tree: ast.AST, function: FunctionType) -> Iterator[tuple[ast.Call, FunctionType]]:
    """Yield functions whose results are returned, with their calls."""
    for call in _calls_returned(tree):
        other = function.__globals__.get(_last(call))
        if isinstance(other, FunctionType):
            yield call, other


def _program(tree: ast.AST) -> ast.FunctionDef | None:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node is tree:
            continue
        if any(_last(decorator) == _PRIM_FUNC for decorator in node.decorator_list):
            return node
    return None


def names(function: ast.FunctionDef) -> tuple[str, ...]:
    """Names of a function's parameters."""
    return tuple(argument.arg for argument in (*function.args.args, *function.args.kwonlyargs))


def sizes(tree: ast.AST, function: FunctionType) -> frozenset[str]:
    """Names that are a dimension or a stride of a tensor, also inside of lists.

    `tree` is a function with tensor parameters, or one that returns such a `T.prim_func`.
    """
    if _program(tree) is None:
        passed = [
            frozenset(_passed(call, other, sizes(tree_of(other, other.__name__), other)))
            for call, other in _called(tree, function)
        ]
        if passed:
            return frozenset[str]().union(*passed)
    values_by_name = _assigned(tree)
    whole = [part for _, annotation in _typed(tree) for part in _parts(annotation)]
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    whole += [call.args[1] for call in calls if _last(call) in _SHAPED and call.args[1:]]
    return frozenset(name for part in whole for name in _listed(part, values_by_name, set()))


def _passed(call: ast.Call, other: FunctionType, wanted: frozenset[str]) -> Iterator[str]:
    """Yield the names that a call passes for the parameters in `wanted`."""
    parameters = list(inspect.signature(other).parameters)
    pairs = [*zip(parameters, call.args, strict=False)]
    pairs += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None]
    for name, value in pairs:
        if name in wanted and isinstance(value, ast.Name):
            yield value.id


def _assigned(tree: ast.AST) -> Mapping[str, list[ast.expr]]:
    """Name -> all values that are assigned to it in the function."""
    values_by_name: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _paired(target, node.value):
                    values_by_name.setdefault(name, []).append(value)
    return values_by_name


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    lists = (ast.Tuple, ast.List)
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, lists) and isinstance(value, lists):
        for element, other in zip(target.elts, value.elts, strict=False):
            yield from _paired(element, other)


def _listed(
    node: ast.AST, values_by_name: Mapping[str, list[ast.expr]], seen: set[str]
) -> Iterator[str]:
    """Yield names that are items of a shape, but not those inside of expressions."""
    if isinstance(node, ast.Name):
        if node.id not in values_by_name:
            yield node.id
        # A name may be assigned a value that contains it, as in `shape = shape + [K]`.
        elif node.id not in seen:
            for value in values_by_name[node.id]:
                yield from _listed(value, values_by_name, seen | {node.id})
    for item in _items(node):
        yield from _listed(item, values_by_name, seen)


def _items(node: ast.AST) -> list[ast.expr]:
    """Items of a list expression, in any of its forms."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = [node.left, node.right]
        return both if any(isinstance(operand, (ast.Tuple, ast.List)) for operand in both) else []
    return []


def dimensions(tree: ast.AST) -> Mapping[str, tuple[str, ...]]:
    """Tensor -> names of its dimensions; empty texts for other dimensions."""
    dimensions_by_tensor: dict[str, tuple[str, ...]] = {}
    for name, annotation in _typed(tree):
        for shape in _parts(annotation)[:1]:
            extents = shape.elts if isinstance(shape, (ast.List, ast.Tuple)) else [shape]
            labels = (e.id if isinstance(e, ast.Name) else "" for e in extents)
            dimensions_by_tensor[name] = tuple(labels)
    return dimensions_by_tensor


def fractions(tree: ast.AST) -> frozenset[str]:
    """Parameters that are annotated as floating-point numbers."""
    typed = (node for node in ast.walk(tree) if isinstance(node, ast.arg))
    return frozenset(a.arg for a in typed if a.annotation and "float" in _last(a.annotation))


def consts(tree: ast.AST) -> Mapping[str, bool]:
    """Names of `T.const("M, N")` -> True if only some branches have it."""
    always = set(_consts(node for node in _unconditional(tree)))
    return {name: name not in always for name in _consts(ast.walk(tree))}


def _consts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call) and _last(node) == _CONST and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield from re.split(r"[\s,]+", first.value.strip())


def _unconditional(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes outside of branches."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.If, ast.IfExp)):
            yield from _unconditional(node)


def returned(tree: ast.AST) -> tuple[str, ...]:
    """Names of tensors of `T.empty` that the function itself returns."""
    allocated = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _last(node.value) == _EMPTY
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for value in _results(tree):
        items = value.elts if isinstance(value, ast.Tuple) else [value]
        variables = (item.id for item in items if isinstance(item, ast.Name))
        return tuple(name for name in variables if name in allocated)
    return ()


def _typed(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, node.annotation


def _parts(annotation: ast.AST) -> list[ast.expr]:
    """Shape in an annotation of a tensor, followed by its strides if it has some.

    It is written `T.Tensor[[M, N], dtype]` or `T.Tensor((M, N), dtype)`.
    """
    if isinstance(annotation, ast.Call) and _last(annotation) in _TENSORS:
        parts = annotation.args
    elif isinstance(annotation, ast.Subscript) and _last(annotation.value) in _TENSORS:
        whole = annotation.slice
        parts = whole.elts if isinstance(whole, ast.Tuple) and whole.elts else [whole]
    else:
        return []
    last_of = _last(annotation.value if isinstance(annotation, ast.Subscript) else annotation)
    return parts[: 2 if "Strided" in last_of else 1]


def _results(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def _calls_returned(tree: ast.AST) -> Iterator[ast.Call]:
    values_by_name = _assigned(tree)
    for result in _results(tree):
        values = values_by_name.get(result.id, []) if isinstance(result, ast.Name) else [result]
        for value in values:
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                yield value


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last(node.func)
    return getattr(node, "attr", getattr(node, "id", ""))
