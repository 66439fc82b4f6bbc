"""Signatures of functions as a card shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kbuild.publish.card.model import PublicFunction

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_of(node: Function, name: str, *, skip: int = 0) -> PublicFunction:
    """A function under a name that may be another than its own.

    Args:
        node: its definition.
        name: what it is called by.
        skip: leading parameters that no caller gives: `self`, `ctx`.
    """
    in_front = [*node.args.posonlyargs, *node.args.args][skip:]
    positional = max(len(node.args.posonlyargs) - skip, 0)
    defaults = node.args.defaults
    arguments = ast.arguments(
        posonlyargs=in_front[:positional],
        args=in_front[positional:],
        vararg=node.args.vararg,
        kwonlyargs=node.args.kwonlyargs,
        kw_defaults=node.args.kw_defaults,
        kwarg=node.args.kwarg,
        # Defaults belong to the last parameters, so those of skipped ones come first.
        defaults=defaults[max(len(defaults) - len(in_front), 0) :],
    )
    return PublicFunction(
        name,
        tuple(_parameters(arguments)),
        _required(arguments),
        _annotation(node.returns),
        ast.get_docstring(node) or "",
    )


def lambda_of(node: ast.Lambda, name: str) -> PublicFunction:
    """The function of a lambda expression."""
    return PublicFunction(name, tuple(_parameters(node.args)), _required(node.args))


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """The parameters as they stand in a signature, with its `/` and `*`."""
    in_front = [*arguments.posonlyargs, *arguments.args]
    missing = len(in_front) - len(arguments.defaults)
    for at, argument in enumerate(in_front, start=1):
        default = arguments.defaults[at - 1 - missing] if at > missing else None
        yield parameter_text(argument.arg, argument.annotation, default)
        if at == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield "*" + parameter_text(arguments.vararg.arg, arguments.vararg.annotation, None)
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield parameter_text(argument.arg, argument.annotation, default)
    if arguments.kwarg is not None:
        yield "**" + parameter_text(arguments.kwarg.arg, arguments.kwarg.annotation, None)


def _required(arguments: ast.arguments) -> tuple[str, ...]:
    """The arguments that a call must give: `x`, `n=n`."""
    in_front = [*arguments.posonlyargs, *arguments.args]
    needed = in_front[: len(in_front) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return (
        *(argument.arg for argument in needed),
        *(f"{one.arg}={one.arg}" for one, default in named if default is None),
    )


def parameter_text(name: str, annotation: ast.expr | None, default: ast.expr | None) -> str:
    """One parameter: `x`, `x=1`, `x: int = 1`."""
    text = f"{name}: {_annotation(annotation)}" if annotation is not None else name
    if default is None:
        return text
    return f"{text}{' = ' if annotation is not None else '='}{ast.unparse(default)}"


def _annotation(node: ast.expr | None) -> str:
    """An annotation on one line, without the quotes that it may have."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    return "" if node is None else ast.unparse(node)


def is_decorated(node: Function | ast.ClassDef, *names: str) -> bool:
    """True when one of the decorators has one of these names, whatever module it comes from."""
    functions = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(ast.unparse(function).rpartition(".")[2] in names for function in functions)
