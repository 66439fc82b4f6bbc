"""The names that a module makes public.

`__all__` counts wherever there is one: a list, a tuple, a sum of them, with an annotation, grown by
`+=`, `append` and `extend`, shrunk by `remove`, and with the `__all__` of other modules of the
package in it. Without one, what is public is what the package defines or takes from its own modules
under a name that does not begin with an underscore.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from kbuild.checks.readers.scopes import Defined, Internal

ALL = "__all__"
Elsewhere = Callable[[ast.expr], Iterable[str]]
"""The names behind an expression that stands for another module's `__all__`."""


def _nothing(_node: ast.expr) -> tuple[str, ...]:
    return ()


def listed_names(tree: ast.Module, elsewhere: Elsewhere = _nothing) -> tuple[str, ...] | None:
    """The names in a module's `__all__`, in order and once each; None when it has none."""
    found: list[str] | None = None
    for statement in _flat(tree.body):
        match statement:
            case ast.Assign(targets=targets, value=value) if any(map(_is_all, targets)):
                found = list(_names_in(value, elsewhere, found))
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_all(target):
                found = list(_names_in(value, elsewhere, found))
            case ast.AugAssign(target=target, op=ast.Add(), value=value) if _is_all(target):
                found = [*(found or ()), *_names_in(value, elsewhere, found)]
            case ast.Expr(value=ast.Call(func=ast.Attribute(owner, method), args=[value])) if (
                _is_all(owner)
            ):
                found = _grown(found or [], method, list(_names_in(value, elsewhere, found)))
    return None if found is None else tuple(dict.fromkeys(found))


def is_public(name: str, binding: object) -> bool:
    """True for a name that a module without `__all__` offers as its own."""
    return not name.startswith("_") and isinstance(binding, Defined | Internal)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in source order, those under `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=first, orelse=second):
                yield from _flat([*first, *second])
            case ast.Try(body=first, handlers=handlers, orelse=second, finalbody=last):
                caught = [inner for handler in handlers for inner in handler.body]
                yield from _flat([*first, *caught, *second, *last])
            case ast.With(body=first):
                yield from _flat(first)


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == ALL


def _grown(names: list[str], method: str, given: list[str]) -> list[str]:
    if method in {"append", "extend"}:
        return [*names, *given]
    if method == "remove":
        return [name for name in names if name not in given]
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
