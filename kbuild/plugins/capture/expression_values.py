"""Values of expressions of a call, in Python: for the search of examples and for constants."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
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


def truth(condition: str, values: Mapping[str, int | float]) -> bool:
    """True if a condition holds.

    Args:
        condition: as `Symbols.guards` gives it.
        values: of the call: `size(x, 0)`, `N`, `eps`.
    """
    return bool(evaluated(condition, values))


def evaluated(text: str, values: Mapping[str, int | float]) -> Any:
    """The value of an expression."""
    return eval(compiled(text), {"__builtins__": {}}, Lookup(values))  # noqa: S307 - our own text


_compiled: dict[str, Any] = {}


def compiled(text: str) -> Any:
    """The code of an expression."""
    if text not in _compiled:
        _compiled[text] = compile(text, "<expression>", "eval")
    return _compiled[text]


class Lookup(dict[str, Any]):
    """Names of an expression: functions, plain names, and `size(x, 0)` as a call."""

    def __init__(self, values: Mapping[str, int | float]) -> None:
        super().__init__(EVALUATION)
        self.update({name: value for name, value in values.items() if name.isidentifier()})
        for query in ("size", "stride"):
            self[query] = lambda tensor, axis, query=query: values[f"{query}({tensor}, {axis})"]
        self["address"] = lambda tensor: values[f"address({tensor})"]
        for query in ("sm_count", "capability"):
            if f"{query}()" in values:
                self[query] = lambda query=query: values[f"{query}()"]

    def __missing__(self, name: str) -> str:
        return name


def names_of(text: str) -> set[str]:
    """Names of an expression: `N`, `stride(x, 0)`."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("size", "stride", "address", "sm_count", "capability"):
                names.add(ast.unparse(node))
                return
            for argument in node.args:
                visit(argument)
            return
        if isinstance(node, ast.Name):
            names.add(node.id)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(text, mode="eval").body)
    return names
