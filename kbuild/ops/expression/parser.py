"""Parses an expression with Python's own parser; errors have a column.

Python's syntax has more than an expression may contain: characters are checked before it is
parsed, and the parts of its syntax tree are those that `ExpressionReader` knows.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from itertools import pairwise
from typing import TypeGuard

from kbuild.ops.expression.nodes import (
    FUNCTIONS,
    INT64_MAX,
    QUERIES,
    BinaryOp,
    Call,
    Compare,
    Conditional,
    ExpressionError,
    Logic,
    Match,
    Name,
    Negative,
    Node,
    Not,
    Number,
    Query,
)

_MAX_PARTS = 300
"""Maximum of words and operators: recursive functions process each part."""
_MAX_DEPTH = 30
"""Maximum of nested calls, signs, `not` and `if`; `_MAX_PARTS` limits what else is nested."""
_PART = re.compile(r"\w+|//|[<>=!]=|[^\w\s]")
_STRING = re.compile(r"'[^'\"\\]*'|\"[^'\"\\]*\"")
_OTHER_CHARACTER = re.compile(r"[^\w\s+\-*/%()\[\]<>=!,.]", re.ASCII)
_ADVICE: dict[str | type[object], str] = {
    "&": "write `and`",
    "|": "write `or`",
    "?": "write `a if condition else b`",
    ":": "write `a if condition else b`",
    '"': "a string starts and ends with the same quote, and contains no quote and no `\\`",
    "'": "a string starts and ends with the same quote, and contains no quote and no `\\`",
    ast.Div: "`//` divides and rounds down, `cdiv(a, b)` rounds up",
    ast.Pow: "`**` is not supported; multiply",
    ast.LShift: "multiply by a power of two",
    ast.RShift: "divide with `//` by a power of two",
    ast.Attribute: "write `size(x, 0)` for a size",
    ast.Subscript: "write `size(x, 0)` for a size",
    float: "expressions use integers; a float argument can be compared: `eps == 1e-5`",
    str: "a string can only be compared with an argument: `mode == 'fast'`",
    type(None): "write `name is None` or `name is not None`",
}
"""Character, operator, or type of a constant without meaning in an expression -> advice."""
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip


def parse_node(text: str) -> Node:
    """Parse a text that is a single expression.

    Raises:
        ExpressionError: it is not an expression.
    """
    return ExpressionReader(text).node(parse_tree(text))


def parse_tree(text: str) -> ast.expr:
    """Parse a text with Python's parser; columns of the tree begin at 0.

    Raises:
        ExpressionError: it has a character or a syntax that no expression has.
    """
    if not text.strip():
        raise ExpressionError("is empty", 1)
    if len(_PART.findall(text)) > _MAX_PARTS:
        raise ExpressionError(f"has more than {_MAX_PARTS} parts", 1, "name some in `let`")
    if other := _OTHER_CHARACTER.search(_STRING.sub(lambda match: " " * len(match[0]), text)):
        character = other[0]
        shown = character if character.isprintable() else ascii(character)[1:-1]
        message = f"`{shown}` has no meaning in an expression"
        raise ExpressionError(message, other.start() + 1, _ADVICE.get(character, ""))
    # One character for one byte, since Python counts columns in bytes; spaces in place of line
    # breaks, and for the space before the text, which would be an indentation.
    source = re.sub(r"[^ -~]", " ", text)
    before = len(source) - len(source.lstrip())
    try:
        with warnings.catch_warnings():
            # `1or x`, which Python still reads, would be printed as a warning about `<unknown>`.
            warnings.simplefilter("error", SyntaxWarning)
            tree = ast.parse(source[before:], mode="eval")
    except SyntaxError as error:
        column = min(max(error.offset or 1, 1) + before, len(text) + 1)
        raise ExpressionError(f"cannot be read: {error.msg}", column) from None
    except (MemoryError, RecursionError):
        raise _too_deep(1) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            node.col_offset += before
            node.end_col_offset = (node.end_col_offset or 0) + before
    return tree.body


def _too_deep(column: int) -> ExpressionError:
    return ExpressionError("is nested too deeply", column, "name parts in `let`")


class ExpressionReader:
    """Converts Python's syntax tree into nodes; raises an error for unsupported syntax."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0

    def node(self, tree: ast.expr) -> Node:  # noqa: C901, PLR0911, PLR0912
        """Convert a part.

        Raises:
            ExpressionError: it has no meaning in an expression.
        """
        column = tree.col_offset + 1
        match tree:
            # Before integers, because `bool` is a subclass of `int`.
            case ast.Constant(value=bool(value)):
                return Number(int(value), column, boolean=True)
            case ast.Constant(value=int(value)) if value <= INT64_MAX:
                return Number(value, column)
            # The smallest integer is written as the negation of a number that does not fit.
            case ast.UnaryOp(ast.USub(), ast.Constant(value=int(value))) if value == INT64_MAX + 1:
                return Number(-value, column)
            case ast.Constant(value=int()):
                raise self.error(tree, "does not fit into 64 bits")
            case ast.Constant(value):
                raise self.error(tree, "is not an integer", _ADVICE.get(type(value), ""))
            case ast.Name(name) if name in FUNCTIONS or name in QUERIES:
                raise self.error(tree, "is a function", f"call it: `{name}(...)`")
            case ast.Name(name):
                return Name(name, column)
            case ast.Subscript(ast.Name(name), index):
                return Query("item", name, self._axis(index, "a list index"), column)
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(name, arguments, column)
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.nested(operand)
            case ast.UnaryOp(ast.Not(), operand):
                return Not(self.nested(operand), column)
            case ast.UnaryOp(ast.USub(), operand):
                return Negative(self.nested(operand), column)
            case ast.BinOp(left, operator, right) if type(operator) in _SYMBOLS:
                sides = self.node(left), self.node(right)
                return BinaryOp(_SYMBOLS[type(operator)], *sides, column)
            case ast.BoolOp(operator, values):
                node, *others = map(self.node, values)
                for other in others:
                    node = Logic(_SYMBOLS[type(operator)], node, other, column)
                return node
            case ast.IfExp(test, then, otherwise):
                parts = self.node(test), self.node(then), self.nested(otherwise)
                return Conditional(*parts, column)
            case ast.Compare():
                return self._compare(tree)
        kind = type(tree.op) if isinstance(tree, ast.BinOp) else type(tree)
        raise self.error(tree, "has no meaning in an expression", _ADVICE.get(kind, ""))

    def text(self, tree: ast.expr) -> str:
        """The text of a part."""
        return self._text[tree.col_offset : tree.end_col_offset]

    def error(self, tree: ast.expr, message: str, hint: str = "") -> ExpressionError:
        """Return the error about a part."""
        return ExpressionError(f"`{self.text(tree)}` {message}", tree.col_offset + 1, hint)

    def nested(self, tree: ast.expr) -> Node:
        """Convert a part inside of another one."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _too_deep(tree.col_offset + 1)
        node = self.node(tree)
        # An error ends the reading, so the depth need not be restored then.
        self._depth -= 1
        return node

    def _compare(self, tree: ast.Compare) -> Node:
        """Convert a comparison; `a < b < c` is `a < b and b < c`, as in Python."""
        column = tree.col_offset + 1
        match tree:
            case ast.Compare(
                ast.Call(ast.Name("dtype"), [tensor], []),
                [ast.Eq() | ast.NotEq() as equality],
                [ast.Constant(str()) as dtype],
            ):
                name = f"dtype({self._tensor('dtype', tensor)})"
                is_it = Match(name, self._string(dtype), column)
                return is_it if isinstance(equality, ast.Eq) else Not(is_it, column)
        left = self.node(tree.left)
        if len(tree.ops) == 1 and (match := self._match(left, tree.ops[0], tree.comparators[0])):
            return match
        if unknown := [operator for operator in tree.ops if type(operator) not in _SYMBOLS]:
            is_none = isinstance(unknown[0], (ast.Is, ast.IsNot))
            hint = _ADVICE[type(None)] if is_none else ""
            raise self.error(tree, "has no meaning in an expression", hint)
        parts = [left, *map(self.node, tree.comparators)]
        pairs = zip(tree.ops, pairwise(parts), strict=True)
        first, *others = (Compare(_SYMBOLS[type(op)], *sides, column) for op, sides in pairs)
        node: Node = first
        for other in others:
            node = Logic("and", node, other, column)
        return node

    def _match(self, left: Node, operator: ast.cmpop, right: ast.expr) -> Node | None:
        """Convert `name is None`, `xs[1] is not None`, `name == 'text'`, `name > -1.5`."""
        if isinstance(operator, (ast.Is, ast.IsNot)):
            is_none = isinstance(right, ast.Constant) and right.value is None
            if not is_none or not (isinstance(left, Name) or _is_item(left)):
                return None
            has = Query("has", left.key, column=left.column)
            return has if isinstance(operator, ast.IsNot) else Not(has, left.column)
        if not isinstance(left, Name) or type(operator) not in _SYMBOLS:
            return None
        value: str | float
        match right:
            case ast.Constant(value=str()) if isinstance(operator, (ast.Eq, ast.NotEq)):
                value = self._string(right)
            case ast.Constant(value=float()) | ast.UnaryOp(ast.USub(), ast.Constant(value=float())):
                value = float(ast.literal_eval(right))
                if not math.isfinite(value):
                    raise self.error(right, "does not fit into 64 bits")
            case _:
                return None
        if isinstance(operator, ast.NotEq):
            return Not(Match(left.name, value, left.column), left.column)
        return Match(left.name, value, left.column, _SYMBOLS[type(operator)])

    def _string(self, tree: ast.expr) -> str:
        """The text of a string, whose characters Python's tree may lack; see `parse_tree`."""
        if not _STRING.fullmatch(self.text(tree)):
            raise self.error(tree, "is not a string", _ADVICE["'"])
        return self.text(tree)[1:-1]

    def _call(self, function: str, arguments: list[ast.expr], column: int) -> Call | Query:
        if function in FUNCTIONS:
            fewest, most = FUNCTIONS[function]
            if fewest <= len(arguments) <= (most or len(arguments)):
                return Call(function, tuple(map(self.nested, arguments)), column)
            wanted = f"{fewest} or more" if most is None else str(fewest)
            plural = "" if most == 1 else "s"
            message = f"`{function}` takes {wanted} argument{plural}, not {len(arguments)}"
            raise ExpressionError(message, column)
        if function == "dtype":
            raise ExpressionError("a dtype is compared: `dtype(x) == 'float16'`", column)
        if function not in QUERIES and function != "len":
            known = ", ".join(f"`{name}`" for name in (*FUNCTIONS, *QUERIES))
            raise ExpressionError(f"`{function}` is not a function", column, f"functions: {known}")
        count = QUERIES.get(function, 1)
        if len(arguments) != count:
            form = ("()", "(tensor)", "(tensor, dimension)")[count]
            raise ExpressionError(f"`{function}` is written `{function}{form}`", column)
        if count == 0:
            return Query(function, column=column)
        tensor = self._tensor(function, arguments[0])
        axis = self._axis(arguments[1], "a dimension") if count > 1 else None
        return Query(function, tensor, axis, column)

    def _tensor(self, function: str, tree: ast.expr) -> str:
        tensor = self.nested(tree)
        if not (isinstance(tensor, Name) or _is_item(tensor)):
            what = "a list" if function == "len" else "a tensor"
            raise ExpressionError(f"`{function}` asks about {what}, by its name", tensor.column)
        return tensor.key

    def _axis(self, tree: ast.expr, what: str) -> int:
        match self.nested(tree):
            case Number(boolean=False) as number:
                return number.value
            case Negative(operand=Number(boolean=False) as number):
                return -number.value
        raise ExpressionError(f"{what} must be a number", tree.col_offset + 1)


def _is_item(node: Node) -> TypeGuard[Query]:
    return isinstance(node, Query) and node.function == "item"
