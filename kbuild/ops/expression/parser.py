"""Parses an expression with Python's own parser; errors have a column.

The tokens are checked first: Python accepts more than an expression may contain (`ª` as `a`, `0b1`,
comments, `lambda`), and its messages are less precise.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeGuard

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

_MAX_TOKENS = 300
"""Maximum of tokens: recursive functions process each part."""
_MAX_DEPTH = 30
"""Maximum of nested brackets, and of nested signs, `not` and `if`."""
_TOKEN = re.compile(
    r"[ \t\r\n]+"
    r"|(?P<integer>0[xX][0-9a-fA-F]+|0+|[1-9][0-9]*(?:_[0-9]+)*)(?![0-9A-Za-z_.])"
    r"|(?P<misspelt>[0-9][0-9_]*)(?![0-9A-Za-z_.])"
    r"|(?P<value>(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
    r"(?![0-9A-Za-z_.])"
    r"|'[^'\"\\\x00-\x1f\x7f]*'|\"[^'\"\\\x00-\x1f\x7f]*\")"
    r"|(?P<operator>(?:and|or|not|if|else|is)(?![0-9A-Za-z_])"
    r"|//|==|!=|<=|>=|\*(?!\*)|<(?!<)|>(?!>)|[-+%(),\[\]])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)",
    re.ASCII,
)
# Operators of other languages, with advice; longer ones first, since the first match wins.
_FOREIGN_OPERATORS = (
    ("**", "`**` is not supported; multiply"),
    ("<<", "multiply by a power of two"),
    (">>", "divide with `//` by a power of two"),
    ("&&", "write `and`"),
    ("||", "write `or`"),
    ("/", "`//` divides and rounds down, `cdiv(a, b)` rounds up"),
    ("!", "write `not`"),
    ("&", "write `and`"),
    ("|", "write `or`"),
    ("?", "write `a if condition else b`"),
    (":", "write `a if condition else b`"),
    ("=", "write `==`"),
    (".", "write `size(x, 0)` for a size"),
    ('"', "a string starts and ends with the same quote, and contains no quote and no `\\`"),
    ("'", "a string starts and ends with the same quote, and contains no quote and no `\\`"),
)
_PAIRS = {"(": ")", "[": "]", "if": "else"}
_BEFORE_NOT = frozenset({"", "(", ",", "and", "or", "not", "if", "else", "is"})
_HINTS = {
    float: "expressions use integers; a float argument can be compared: `eps == 1e-5`",
    str: "a string can only be compared with an argument: `mode == 'fast'`",
    type(None): "write `name is None` or `name is not None`",
}
"""Type of a constant that is not an integer -> where it is allowed."""

_ORDERS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def parse_node(text: str) -> Node:
    """Parse a text that is a single expression.

    Raises:
        ExpressionError: it is not an expression.
    """
    _validate_tokens(text)
    # One character for one byte: Python counts columns in bytes. They begin at 0, hence the `(`.
    source = "(" + re.sub(r"[^ -~]", " ", text) + ")"
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"cannot be read: {error.msg}", (error.offset or 2) - 1) from None
    return _Converter(f"({text})").node(tree)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    start = count = 0
    while start < len(text):
        token = _TOKEN.match(text, start)
        if token is None:
            raise _unknown_character(text, start)
        if token.lastgroup is not None:
            count += 1
            if count > _MAX_TOKENS:
                message = f"has more than {_MAX_TOKENS} parts"
                raise ExpressionError(message, start + 1, "name some in `let`")
            yield token
        start = token.end()


def _unknown_character(text: str, at: int) -> ExpressionError:
    for symbol, hint in _FOREIGN_OPERATORS:
        if text.startswith(symbol, at):
            return ExpressionError(f"`{symbol}` is not an operator here", at + 1, hint)
    shown = text[at] if text[at].isprintable() else text[at].encode("unicode_escape").decode()
    return ExpressionError(f"`{shown}` has no meaning in an expression", at + 1)


def _validate_tokens(text: str) -> None:
    """Check words and numbers, and that no operator or value is missing between tokens."""
    pending: list[str] = []
    previous, after_value = "", False
    for token in _tokens(text):
        word, column = token.group(), token.start() + 1
        if expected := _expected(token, previous, after_value, pending[-1] if pending else ""):
            raise ExpressionError(f"expected {expected}, found `{word}`", column)
        if token["name"] and keyword.iskeyword(word) and word not in {"True", "False", "None"}:
            raise ExpressionError(f"`{word}` is a keyword of Python, not a name", column)
        if token["misspelt"]:
            hint = "write it without leading zeros and without `_` at the end"
            raise ExpressionError(f"`{word}` is not an integer", column, hint)
        if word in _PAIRS:
            pending.append(_PAIRS[word])
            if len(pending) > _MAX_DEPTH:
                raise _too_deep(column)
        elif word in _PAIRS.values():
            pending.pop()
        previous, after_value = word, token["operator"] is None or word in {")", "]"}
    if pending or not after_value:
        expected = f"`{pending[-1]}`" if after_value else "a value"
        raise ExpressionError(f"expected {expected}, found the end", len(text.rstrip()) + 1)


def _expected(token: re.Match[str], previous: str, after_value: bool, closing: str) -> str:
    """Return what is expected instead of this token; empty if the token is allowed.

    Args:
        token: the next token.
        previous: text of the token before it; empty at the beginning.
        after_value: True if a value ends before it.
        closing: end of the innermost bracket or condition; empty outside of all.
    """
    word, is_value = token.group(), token["operator"] is None
    if not after_value:
        is_prefix = word in {"(", "-", "+"} or (word == "not" and previous in _BEFORE_NOT)
        return "" if is_value or is_prefix or (previous, word) == ("(", ")") else "a value"
    if is_value or word == "not":
        return "an operator"
    pair = (word, closing)
    if word not in {")", "]", "else", ","} and pair != ("if", "else"):
        return ""
    if word == closing or pair == (",", ")"):
        return ""
    return f"`{closing}`" if closing else "an operator"


def _too_deep(column: int) -> ExpressionError:
    return ExpressionError("is nested too deeply", column, "name parts in `let`")


class _Converter:
    """Converts Python's syntax tree into nodes; raises an error for unsupported syntax."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._depth = 0

    def node(self, tree: ast.expr) -> Node:  # noqa: C901, PLR0911, PLR0912
        column = tree.col_offset
        match tree:
            case ast.Constant(value=bool(value)):
                return Number(int(value), column, boolean=True)
            case ast.Constant(value=int(value)) if value <= INT64_MAX:
                return Number(value, column)
            # The smallest integer is written as the negation of a number that does not fit.
            case ast.UnaryOp(ast.USub(), ast.Constant(value=int(value))) if value == INT64_MAX + 1:
                return Number(-value, column)
            case ast.Constant(value=int()):
                raise self._error(tree, "does not fit into 64 bits")
            case ast.Constant(value):
                raise self._error(tree, "is not an integer", _HINTS[type(value)])
            case ast.Name(name) if name in FUNCTIONS or name in QUERIES:
                raise self._error(tree, "is a function", f"call it: `{name}(...)`")
            case ast.Name(name):
                return Name(name, column)
            case ast.Subscript(ast.Name(name), index):
                return Query("item", name, _axis(self.node(index), "a list index"), column)
            case ast.Call(ast.Name(name), arguments):
                return self._call(name, arguments, column)
            case ast.UnaryOp(ast.UAdd(), operand):
                return self._nested(operand)
            case ast.UnaryOp(ast.Not(), operand):
                return Not(self._nested(operand), column)
            case ast.UnaryOp(_, operand):
                return Negative(self._nested(operand), column)
            case ast.BinOp(left, _, right):
                symbol, column = self._operator_after(left)
                return BinaryOp(symbol, self.node(left), self.node(right), column)
            case ast.BoolOp(_, values):
                node = self.node(values[0])
                for left, right in pairwise(values):
                    symbol, column = self._operator_after(left)
                    node = Logic(symbol, node, self.node(right), column)
                return node
            case ast.IfExp(test, then, otherwise):
                sides = self.node(then), self._nested(otherwise)
                return Conditional(self.node(test), *sides, self._operator_after(then)[1])
            case ast.Compare():
                return self._compare(tree)
        raise self._error(tree, "has no meaning in an expression")

    def _text(self, tree: ast.expr) -> str:
        return self._source[tree.col_offset : tree.end_col_offset]

    def _error(self, tree: ast.expr, message: str, hint: str = "") -> ExpressionError:
        return ExpressionError(f"`{self._text(tree)}` {message}", tree.col_offset, hint)

    def _nested(self, tree: ast.expr) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _too_deep(tree.col_offset)
        node = self.node(tree)
        self._depth -= 1
        return node

    def _operator_after(self, left: ast.expr) -> tuple[Any, int]:
        """The operator after a value and its closing parentheses, and its column."""
        rest = self._source[left.end_col_offset :].lstrip(" \t\r\n)")
        token = _TOKEN.match(rest)
        return token and token.group(), len(self._source) - len(rest)

    def _compare(self, tree: ast.Compare) -> Node:
        """Convert a comparison; `a < b < c` is `a < b and b < c`, as in Python."""
        match tree:
            case ast.Compare(
                ast.Call(ast.Name("dtype"), [tensor]),
                [ast.Eq() | ast.NotEq() as equality],
                [ast.Constant(str()) as dtype],
            ):
                name = f"dtype({self._tensor('dtype', tensor)})"
                is_it = Match(name, self._text(dtype)[1:-1], tree.col_offset)
                return is_it if isinstance(equality, ast.Eq) else Not(is_it, tree.col_offset)
        left = self.node(tree.left)
        if len(tree.ops) == 1 and (match := self._match(left, tree.ops[0], tree.comparators[0])):
            return match
        chained: Node | None = None
        for before, after in pairwise((tree.left, *tree.comparators)):
            symbol, column = self._operator_after(before)
            if symbol == "is":
                raise ExpressionError(
                    "expected an operator, found `is`", column, _HINTS[type(None)]
                )
            right = self.node(after)
            link = Compare(symbol, left, right, column)
            chained = link if chained is None else Logic("and", chained, link, column)
            left = right
        return chained or left

    def _match(self, left: Node, operator: ast.cmpop, right: ast.expr) -> Node | None:
        """Convert `name is None`, `xs[1] is not None`, `name == 'text'`, `name > -1.5`."""
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if not (isinstance(left, Name) or _is_item(left)):
                return None
            if not (isinstance(right, ast.Constant) and right.value is None):
                message = f"expected `None`, found `{self._text(right)}`"
                raise ExpressionError(message, right.col_offset)
            has = Query("has", left.key, column=left.column)
            return has if isinstance(operator, ast.IsNot) else Not(has, left.column)
        if not isinstance(left, Name):
            return None
        value: str | float
        match right:
            case ast.Constant(value=str()) if isinstance(operator, (ast.Eq, ast.NotEq)):
                value = self._text(right)[1:-1]
            case ast.Constant(value=float()) | ast.UnaryOp(ast.USub(), ast.Constant(value=float())):
                value = float(ast.literal_eval(right))
                if not math.isfinite(value):
                    raise self._error(right, "does not fit into 64 bits")
            case _:
                return None
        if type(operator) in _ORDERS:
            return Match(left.name, value, left.column, _ORDERS[type(operator)])
        match = Match(left.name, value, left.column)
        return match if isinstance(operator, ast.Eq) else Not(match, left.column)

    def _call(self, function: str, arguments: list[ast.expr], column: int) -> Call | Query:
        if function in FUNCTIONS:
            fewest, most = FUNCTIONS[function]
            if fewest <= len(arguments) <= (most or len(arguments)):
                return Call(function, tuple(self.node(part) for part in arguments), column)
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
        axis = _axis(self.node(arguments[1]), "a dimension") if count > 1 else None
        return Query(function, tensor, axis, column)

    def _tensor(self, function: str, tree: ast.expr) -> str:
        tensor = self.node(tree)
        if not (isinstance(tensor, Name) or _is_item(tensor)):
            what = "a list" if function == "len" else "a tensor"
            raise ExpressionError(f"`{function}` asks about {what}, by its name", tensor.column)
        return tensor.key


def _is_item(node: Node) -> TypeGuard[Query]:
    return isinstance(node, Query) and node.function == "item"


def _axis(node: Node, what: str) -> int:
    match node:
        case Number(boolean=False):
            return node.value
        case Negative(operand=Number(boolean=False) as number):
            return -number.value
        case _:
            raise ExpressionError(f"{what} must be a number", node.column)
