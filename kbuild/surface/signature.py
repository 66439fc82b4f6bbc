"""From a definition in a syntax tree to a `Function`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from kbuild.surface.model import Function, Kind, Parameter

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def function_of(node: Definition, name: str, *, skip: int = 0) -> Function:
    """The function under a name that may be another than its own.

    Args:
        node: its definition.
        name: what it is called by.
        skip: leading parameters that no caller gives: `self`, `ctx`.
    """
    doc = ast.get_docstring(node) or ""
    return Function(name, _without(parameters_of(node.args), skip), text_of(node.returns), doc)


def lambda_of(node: ast.Lambda, name: str) -> Function:
    """The function that a lambda makes."""
    return Function(name, parameters_of(node.args))


def parameters_of(args: ast.arguments) -> tuple[Parameter, ...]:
    """All parameters, in the order in which they are written."""
    return tuple(chain(_positional(args), _variadic_and_named(args)))


def text_of(node: ast.expr | None) -> str:
    """The source of an expression on one line; a quoted annotation without its quotes."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    return ast.unparse(node)


def decorated(node: Definition | ast.ClassDef, *names: str) -> bool:
    """True when one of the decorators has one of these names, whatever module it comes from."""
    called = (found.func if isinstance(found, ast.Call) else found for found in node.decorator_list)
    return any(ast.unparse(found).rpartition(".")[2] in names for found in called)


def _without(parameters: Sequence[Parameter], skip: int) -> tuple[Parameter, ...]:
    """The rest; what `*args` takes in cannot be dropped."""
    given = list(parameters)
    while skip and given and given[0].kind in {Kind.POSITIONAL_ONLY, Kind.NORMAL}:
        del given[0]
        skip -= 1
    return tuple(given)


def _positional(args: ast.arguments) -> Iterator[Parameter]:
    nodes = [*args.posonlyargs, *args.args]
    required = len(nodes) - len(args.defaults)
    defaults = chain(repeat(None, required), args.defaults)
    for at, (node, default) in enumerate(zip(nodes, defaults, strict=True)):
        kind = Kind.POSITIONAL_ONLY if at < len(args.posonlyargs) else Kind.NORMAL
        yield _parameter(node, kind, default)


def _variadic_and_named(args: ast.arguments) -> Iterator[Parameter]:
    if args.vararg:
        yield _parameter(args.vararg, Kind.VAR_POSITIONAL, None)
    for node, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(node, Kind.KEYWORD_ONLY, default)
    if args.kwarg:
        yield _parameter(args.kwarg, Kind.VAR_KEYWORD, None)


def _parameter(node: ast.arg, kind: Kind, default: ast.expr | None) -> Parameter:
    written = None if default is None else ast.unparse(default)
    return Parameter(node.arg, kind, text_of(node.annotation), written)
