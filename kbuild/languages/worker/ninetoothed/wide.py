"""Positions with 64 bits in what NineToothed's generator wrote. Needs nothing but Python.

The generator multiplies the number of a block with its size, and both have 32 bits. Sizes and
strides with 64 bits do not change that: the product overflows before it meets them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

FAR = 2**31 - 2**20
"""The first number of elements that is not counted with 32 bits: a block has at most 2**20."""
_POSITIONED = {"load", "store"}


def widened(function: ast.FunctionDef, wide: str, *, loops: bool) -> None:
    """Count with 64 bits where the constant is true, which becomes the last parameter.

    Args:
        function: changed in place.
        wide: a name that is free in it.
        loops: whether 32 bits are too few for loops over sizes that are written into the kernel.
            Loops over other sizes have the bits of these.
    """
    _Wider(wide, loops=loops).visit(function)
    annotation = ast.parse("tl.constexpr", mode="eval").body
    function.args.args.append(ast.arg(wide, annotation))
    ast.fix_missing_locations(function)


def has_long_loops(config: Mapping[str, Any]) -> bool:
    """Whether the sizes in the kernel make more elements than 32 bits count."""
    shapes = (one["shape"] for one in config["tensors"].values())
    return any(math.prod(size for size in shape if size) >= FAR for shape in shapes)


class _Wider(ast.NodeTransformer):
    def __init__(self, wide: str, *, loops: bool) -> None:
        self._wide = wide
        self._loops = loops
        self._in_position = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _called(node)
        if name in _POSITIONED or name.startswith("atomic_"):
            return self._access(node)
        self.generic_visit(node)
        if name == "program_id" or (name == "arange" and self._in_position):
            return self._either(node)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        loop = node.iter
        if self._loops and isinstance(loop, ast.Call) and _called(loop) == "range" and loop.args:
            end = min(1, len(loop.args) - 1)
            loop.args[end] = self._either(loop.args[end])
        return node

    def _access(self, node: ast.Call) -> ast.Call:
        """Where it is, and whether it is there; what is stored stays as it is."""
        before = self._in_position
        node.args = [self._part(one, is_position=not at) for at, one in enumerate(node.args)]
        for word in node.keywords:
            word.value = self._part(word.value, is_position=word.arg == "mask")
        self._in_position = before
        return node

    def _part(self, node: ast.expr, *, is_position: bool) -> ast.expr:
        self._in_position = is_position
        changed: ast.expr = self.visit(node)
        return changed

    def _either(self, node: ast.expr) -> ast.expr:
        text = ast.unparse(node)
        both = f"(tl.cast({text}, tl.int64) if {self._wide} else {text})"
        return ast.parse(both, mode="eval").body


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
