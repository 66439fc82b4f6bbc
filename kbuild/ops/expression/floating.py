"""Expressions with fractions, for floats of kernels: `1.0 / N`, `scale * 0.5`, `D ** -0.5`.

Parts without a float are integer expressions; everything else is computed in 64-bit floats,
with the values of Python; C++ refuses what raises an error there.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kbuild.ops.expression.expression import Expression, fold
from kbuild.ops.expression.nodes import ExpressionError, Node, known_given
from kbuild.ops.expression.parser import ExpressionReader, parse_tree

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}
_CXX_FUNCTIONS = {"/": "divide", "**": "power", "sqrt": "root"}
_FUNCTIONS = {"sqrt": (1, 1), "min": (2, 99), "max": (2, 99)}
"""Function -> minimum and maximum of arguments."""


@dataclass(frozen=True)
class FloatNumber:
    """A number that is the same in every call."""

    value: float


@dataclass(frozen=True)
class FloatName:
    """A float argument of the op, or an item of a list of them."""

    key: str

    @property
    def argument(self) -> str:
        """The argument's name."""
        return self.key.partition("[")[0]


@dataclass(frozen=True)
class FloatCall:
    """An operator or one of `sqrt`, `min`, `max`."""

    function: str
    arguments: tuple[FloatNode, ...]


@dataclass(frozen=True)
class FloatConditional:
    """`then if condition else otherwise`."""

    condition: Expression
    then: FloatNode
    otherwise: FloatNode


FloatNode: TypeAlias = "FloatNumber | FloatName | FloatCall | FloatConditional | Expression"


@dataclass(frozen=True)
class FloatExpression:
    """A float expression over the arguments of a call."""

    text: str = field(compare=False)
    root: FloatNode

    def __str__(self) -> str:
        return self.text

    def integers(self) -> tuple[Expression, ...]:
        """The parts that are integers or conditions, in the order of the text."""
        return tuple(part for part in _parts(self.root) if isinstance(part, Expression))

    def floats(self) -> tuple[FloatName, ...]:
        """The float arguments that it uses."""
        return tuple(part for part in _parts(self.root) if isinstance(part, FloatName))

    def unguarded(
        self, optional: Collection[str], let: Mapping[str, Expression]
    ) -> tuple[str, ...]:
        """Arguments that may be None where it uses them; see `Expression.unguarded`."""
        roots = {name: expression.root for name, expression in let.items()}
        return tuple(_unguarded(self.root, frozenset(optional), roots))

    def to_cxx(self, names: Mapping[str, str], floats: Mapping[str, str]) -> str:
        """Return a C++ expression of type `double`; see `Expression.to_cxx`."""
        return _to_cxx(self.root, names, floats)

    def to_python(self, names: Mapping[str, str], floats: Mapping[str, str]) -> str:
        """Return a Python expression; needs `importlib` in scope. See `Expression.to_python`."""
        return _to_python(self.root, names, floats)


def parse_float(text: str, floats: Collection[str]) -> FloatExpression | None:
    """Parse a float expression; return None for an integer expression or any other text.

    Args:
        text: text of the expression.
        floats: names of the arguments that are floats, or lists of floats.

    Raises:
        ExpressionError: a part of it is not supported.
    """
    try:
        tree = parse_tree(text)
    except ExpressionError:
        return None
    reader = _FloatReader(text, frozenset(floats))
    return FloatExpression(text, reader.part(tree)) if reader.is_float(tree) else None


class _FloatReader(ExpressionReader):
    def __init__(self, text: str, floats: frozenset[str]) -> None:
        super().__init__(text)
        self._floats = floats

    def is_float(self, tree: ast.expr) -> bool:  # noqa: PLR0911
        """True if a part contains a float."""
        match tree:
            case ast.Constant(value):
                return isinstance(value, float)
            case ast.Name(name) | ast.Subscript(ast.Name(name)):
                return name in self._floats
            case ast.BinOp(left, operator, right):
                always = isinstance(operator, (ast.Div, ast.Pow))
                return always or self.is_float(left) or self.is_float(right)
            case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
                return self.is_float(operand)
            case ast.Call(ast.Name(name), arguments):
                is_own = name in _FUNCTIONS and any(map(self.is_float, arguments))
                return name == "sqrt" or is_own
            case ast.IfExp(_, then, otherwise):
                return self.is_float(then) or self.is_float(otherwise)
            case _:
                return False

    def part(self, tree: ast.expr) -> FloatNode:  # noqa: C901, PLR0911
        """Convert a part; the largest parts without floats become integer expressions."""
        if not self.is_float(tree):
            return Expression(self.text(tree), fold(self.node(tree)))
        match tree:
            # Python reads `1e999` as infinity, for which C++ has no literal.
            case ast.Constant(float(value)) if math.isfinite(value):
                return FloatNumber(value)
            case ast.Name(name):
                return FloatName(name)
            case ast.Subscript(ast.Name()):
                return FloatName(self.text(tree).replace(" ", ""))
            case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
                return FloatCall(_OPERATORS[type(operator)], (self.part(left), self.part(right)))
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.part(operand)
            case ast.UnaryOp(_, operand):
                return FloatCall("negative", (self.part(operand),))
            case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
                fewest, most = _FUNCTIONS[name]
                if fewest <= len(arguments) <= most:
                    return FloatCall(name, tuple(map(self.part, arguments)))
            case ast.IfExp(test, then, otherwise):
                condition = Expression(self.text(test), fold(self.node(test)))
                if not condition.is_condition:
                    raise self.error(test, "is a number, not a condition", "compare it")
                return FloatConditional(condition, self.part(then), self.part(otherwise))
        hint = "floats have `+ - * / **`, `sqrt`, `min`, `max` and `a if c else b`"
        raise self.error(tree, "has no meaning in a float", hint)


def _parts(node: FloatNode) -> Iterator[FloatNode]:
    yield node
    match node:
        case FloatCall():
            for part in node.arguments:
                yield from _parts(part)
        case FloatConditional():
            for part in (node.then, node.condition, node.otherwise):
                yield from _parts(part)


def _unguarded(node: FloatNode, optional: frozenset[str], let: Mapping[str, Node]) -> Iterator[str]:
    match node:
        case FloatName() if node.argument in optional:
            yield node.argument
        case Expression():
            meant = {name: Expression(name, root) for name, root in let.items()}
            for leaf in node.unguarded(optional, meant):
                yield getattr(leaf, "tensor", "") or getattr(leaf, "name", "")
        case FloatCall():
            for part in node.arguments:
                yield from _unguarded(part, optional, let)
        case FloatConditional():
            yield from _unguarded(node.condition, optional, let)
            given = known_given(node.condition.root, True, let)
            yield from _unguarded(node.then, optional - given, let)
            given = known_given(node.condition.root, False, let)
            yield from _unguarded(node.otherwise, optional - given, let)


def _to_cxx(  # noqa: PLR0911
    node: FloatNode, names: Mapping[str, str], floats: Mapping[str, str]
) -> str:
    match node:
        case Expression():
            return f"double({node.to_cxx(names)})"
        case FloatNumber():
            return repr(node.value)
        case FloatName():
            return floats[node.key]
        case FloatConditional():
            sides = [_to_cxx(part, names, floats) for part in (node.then, node.otherwise)]
            return f"({node.condition.to_cxx(names)} != 0 ? {sides[0]} : {sides[1]})"
    operands = [_to_cxx(part, names, floats) for part in node.arguments]
    listed = ", ".join(operands)
    match node.function:
        case "negative":
            # The inner parentheses keep two signs apart: `--` is a decrement in C++.
            return f"(-({listed}))"
        case "min" | "max":
            return f"std::{node.function}<double>({{{listed}}})"
        case "+" | "-" | "*":
            return f"({operands[0]} {node.function} {operands[1]})"
    return f"checked.{_CXX_FUNCTIONS[node.function]}({listed})"


def _to_python(  # noqa: PLR0911
    node: FloatNode, names: Mapping[str, str], floats: Mapping[str, str]
) -> str:
    match node:
        case Expression():
            return f"float({node.to_python(names)})"
        case FloatNumber():
            return repr(node.value)
        case FloatName():
            return floats[node.key]
        case FloatConditional():
            then, otherwise = (
                _to_python(part, names, floats) for part in (node.then, node.otherwise)
            )
            return f"({then} if {node.condition.to_python(names)} else {otherwise})"
    operands = [_to_python(part, names, floats) for part in node.arguments]
    match node.function:
        case "negative":
            return f"(-{operands[0]})"
        case "sqrt":
            return f"importlib.import_module('math').sqrt({operands[0]})"
        case "min" | "max":
            return f"{node.function}({', '.join(operands)})"
    return f"({operands[0]} {node.function} {operands[1]})"
