"""Values and expressions of a run, as `build.toml` writes them: numbers, texts, shapes."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from kbuild.plugins.capture.programs import CaptureError

BATCH = ("dim_0", "dim_1", "dim_2")
"""Names of the dimensions that `...` stands for in a run; ops take as many and no more."""
ROWS = "rows"
"""The product of these dimensions."""


def factors(sizes: Sequence[str]) -> tuple[str, ...]:
    """Sorted factors of a product of sizes; equal products mostly have equal factors."""
    parts = [part for size in sizes for part in _factors(ast.parse(size, mode="eval").body)]
    number = math.prod(int(part) for part in parts if part.isdigit())
    parts = [part for part in parts if not part.isdigit()] + [str(number)] * (number != 1)
    rows = [part for part in parts if part in BATCH]
    # Where `...` is one dimension, that is the product.
    if len(rows) > 1 or rows == [BATCH[0]]:
        parts = [part for part in parts if part not in BATCH] + [ROWS]
    return tuple(sorted(parts))


def _factors(node: ast.expr) -> list[str]:
    """Factors of an expression; the expression itself if it is no product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [ast.unparse(node)]


def usual(text: str) -> str:
    """An expression with the last alternative of each condition: the stride of dense rows."""
    if " if " not in text and not text.startswith("max("):
        return text
    parts = factors([ast.unparse(_Last().visit(ast.parse(text, mode="eval")))])
    return " * ".join(parts) or "1"


class _Last(ast.NodeTransformer):
    """Takes the last alternative of conditions, and `N` of `max(N, 1)`."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        last: ast.AST = self.visit(node.orelse)
        return last

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name, *arguments = map(ast.unparse, (node.func, *node.args))
        return node.args[0] if name == "max" and arguments[1:] == ["1"] else node


def is_contiguous(value: Mapping[str, Any]) -> bool:
    """True if the strides of a tensor are those of a contiguous one, in every call."""
    expected: list[str] = []
    for size, stride in zip(reversed(value["sizes"]), reversed(value["strides"]), strict=True):
        if factors([stride]) != factors(expected):
            return False
        expected.append(size)
    return True


def is_literal(value: Any) -> bool:
    """True if a value is the same in every call."""
    if value is None or "string" in value:
        return True
    kind, text = next(iter(value.items()))
    return (
        text in ("True", "False")
        if kind == "bool"
        else kind in ("int", "float") and is_number(text)
    )


def literal(value: Any) -> Any:
    """The value of a constant, for TOML."""
    if value is None:
        return "None"
    ((kind, text),) = value.items()
    if kind == "bool":
        return text == "True"
    return text if kind == "string" else number_of(text)


def is_number(text: str) -> bool:
    """True if a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def number_of(text: str) -> int | float | str:
    """A number where the text is one; `inf` and `nan` stay texts."""
    try:
        return int(text)
    except ValueError:
        pass
    return float(text) if is_number(text) and math.isfinite(float(text)) else text


def launch_number(value: Mapping[str, str]) -> Any:
    """A number or a boolean as an argument of a launch."""
    ((kind, text),) = value.items()
    if kind not in ("bool", "float", "int"):
        raise CaptureError(f"passes the argument `{text}` of the kind {kind}")
    if kind == "bool":
        return text == "True" if text in ("True", "False") else text
    if kind == "float":
        return float(text) if is_number(text) else text
    return number_of(text)


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
        # The function's own name is no parameter, so only its arguments are visited.
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


def names_in(value: Any) -> set[str]:
    """Names in the expressions of a part of a run."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(names_in, value))
    names: set[str] = set()
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if key in ("int", "float", "bool", "offset") and isinstance(item, str):
            names |= names_of(item)
        elif key in ("sizes", "strides", "grid") and isinstance(item, list):
            names |= set().union(*map(names_of, item))
        else:
            names |= names_in(item)
    return names


def expanded(shape: Sequence[Any], batch: int) -> tuple[str, ...]:
    """A shape with names for the dimensions of `...`."""
    return tuple(
        name for size in shape for name in (BATCH[:batch] if size == "..." else (str(size),))
    )


def with_batch(table: dict[str, Any], owner: str, sizes: Sequence[str]) -> dict[str, Any]:
    """The table of an op with `...` for the batch dimensions; it may use only their product.

    `owner` is an argument that has the batch dimensions, with `sizes`.
    """
    batch = [name for name in sizes if name in BATCH]
    table["shapes"] = {name: _with_dots(shape, batch) for name, shape in table["shapes"].items()}
    if len(batch) == 1:  # it is the product, too
        text = re.sub(rf"\b{batch[0]}\b", ROWS, json.dumps(table))
        table = json.loads(text)
    if re.search(rf"\b({'|'.join(batch)})\b", json.dumps(table)):
        raise CaptureError("depends on single dimensions of `...`: name them in `shape`")
    if re.search(rf"\b{ROWS}\b", json.dumps(table)):
        rest = " * ".join(size for size in sizes if size not in BATCH) or "1"
        rows = f"numel({owner}) // max({rest}, 1)" if rest != "1" else f"numel({owner})"
        table["shapes"] = {
            name: [
                re.sub(rf"\b{ROWS}\b", f"({rows})", size) if size != ROWS else rows
                for size in shape
            ]
            for name, shape in table["shapes"].items()
        }
        table = {**table, "let": {ROWS: rows}}
    fixed = len(sizes) - len(batch)
    ranks = (f"dim({owner}) > {fixed}", f"dim({owner}) <= {fixed + len(BATCH)}")
    return {**table, "require": [*table.get("require", ()), *ranks]}


def _with_dots(shape: Any, batch: Sequence[str]) -> Any:
    if not isinstance(shape, list):
        return shape
    for at in range(len(shape) - len(batch) + 1):
        if [*map(str, shape[at : at + len(batch)])] == [*batch]:
            return [*shape[:at], "...", *shape[at + len(batch) :]]
    return shape
