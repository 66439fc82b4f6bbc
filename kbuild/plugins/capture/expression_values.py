"""Values of expressions of a call, in Python: for the search of examples and for constants."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

CAPABILITIES = (50, 199)
"""The smallest and the largest value of `capability()` on a GPU of NVIDIA."""
GPUS = (
    50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121,
)  # fmt: skip
"""Values of `capability()` on existing GPUs."""


def next_power_of_2(number: int) -> int:
    """The smallest power of two that is not below `number`; 1 for all below 1."""
    return 1 << max(number - 1, 0).bit_length()


def ceiling_division(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


EVALUATION = {
    "next_pow2": next_power_of_2,
    "cdiv": ceiling_division,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "abs": abs,
}
"""The functions of expressions, for `eval`."""
_QUERIES = {"size", "stride", "address", "sm_count", "capability"}


def truth(condition: str, values: Mapping[str, int | float]) -> bool:
    """True if a condition holds.

    Args:
        condition: as `Symbols.guards` gives it.
        values: of the call: `size(x, 0)`, `N`, `eps`.
    """
    return bool(evaluated(condition, values))


def evaluated(text: str, values: Mapping[str, int | float]) -> Any:
    """The value of an expression; a plain name without a value is its own text.

    Raises:
        KeyError: a query such as `size(x, 0)` has no value.
        ArithmeticError: by the expression itself.
    """
    function, names = _function(text)
    return function(*[values[n] if "(" in n else values.get(n, n) for n in names])


def function_of(text: str, names: Sequence[str]) -> Callable[..., Any]:
    """An expression as a function of the values of `names`, which has all names in it.

    It is for millions of values, where looking names up would take most of the time.
    """
    return _function(text, tuple(names))[0]


@cache
def _function(text: str, names: tuple[str, ...] = ()) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """An expression as a function, and what its parameters are: `N`, `size(x, 0)`."""
    parameters = _Parameters({name: f"_{at}" for at, name in enumerate(names)})
    body = parameters.visit(ast.parse(text, mode="eval").body)
    arguments = [ast.arg(name) for name in parameters.names.values()]
    signature = ast.arguments([], arguments, None, [], [], None, [])
    code = ast.fix_missing_locations(ast.Expression(ast.Lambda(signature, body)))
    function = eval(compile(code, "<expression>", "eval"), {"__builtins__": {}, **EVALUATION})  # noqa: S307 - our own text
    return function, tuple(parameters.names)


class _Parameters(ast.NodeTransformer):
    """Replaces the names and queries of an expression by parameters."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        """Name or query -> its parameter."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in _QUERIES:
            return self._parameter(ast.unparse(node))
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._parameter(node.id)

    def _parameter(self, name: str) -> ast.Name:
        return ast.Name(self.names.setdefault(name, f"_{len(self.names)}"), ast.Load())


@cache
def compiled(text: str) -> Any:
    """The code of an expression."""
    return compile(text, "<expression>", "eval")


@cache
def names_of(text: str) -> frozenset[str]:
    """Names of an expression: `N`, `stride(x, 0)`."""
    return frozenset(_function(text)[1])
