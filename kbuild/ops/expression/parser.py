"""Parses the text of an expression into nodes, with Python's precedence; errors name a column."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

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

ExpressionTokenKind = Literal["number", "real", "string", "name", "word", "symbol", "end"]

KEYWORDS = frozenset({"and", "or", "not", "if", "else", "is", "True", "False", "None"})
"""Names with a meaning of their own."""
MAX_TOKENS = 300
"""Tokens of the longest expression: what reads it calls itself for each part."""
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|[0-9][0-9_]*)(?![0-9A-Za-z_.])"
    r"|(?P<real>(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+))"
    r"(?![0-9A-Za-z_.])"
    r"|(?P<string>'[^'\"\\\x00-\x1f\x7f]*'|\"[^'\"\\\x00-\x1f\x7f]*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>//|==|!=|<=|>=|\*(?!\*)|<(?!<)|>(?!>)|[-+%(),\[\]])",
    re.ASCII,
)
# What people write from other languages, and what it is called here; the longest first.
_FOREIGN_OPERATORS = (
    ("**", "there are no powers; multiply"),
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
    (".", "sizes are asked for by `size(x, 0)`"),
    ('"', "a string ends with the quote that it begins with, and has no other and no `\\`"),
    ("'", "a string ends with the quote that it begins with, and has no other and no `\\`"),
)


@dataclass(frozen=True)
class ExpressionToken:
    """A piece of the text."""

    kind: ExpressionTokenKind
    text: str
    column: int

    def __str__(self) -> str:
        return f"`{self.text}`" if self.text else "the end"


def tokenize(text: str) -> Iterator[ExpressionToken]:
    """The tokens of an expression, an `end` last.

    Raises:
        ExpressionError: a character that no expression has, or too many tokens.
    """
    at = count = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unknown_character(text, at)
        if match.lastgroup != "space":
            yield _token(match)
            count += 1
        if count > MAX_TOKENS:
            raise ExpressionError(f"has more than {MAX_TOKENS} parts", at + 1, "name some in `let`")
        at = match.end()
    yield ExpressionToken("end", "", len(text.rstrip()) + 1)


def _token(match: re.Match[str]) -> ExpressionToken:
    kinds: tuple[ExpressionTokenKind, ...] = ("number", "real", "string", "name", "symbol")
    word = match.group() in KEYWORDS
    kind: ExpressionTokenKind = (
        "word" if word else kinds[kinds.index(cast("ExpressionTokenKind", match.lastgroup))]
    )
    return ExpressionToken(kind, match.group(), match.start() + 1)


def _unknown_character(text: str, at: int) -> ExpressionError:
    for symbol, hint in _FOREIGN_OPERATORS:
        if text.startswith(symbol, at):
            return ExpressionError(f"`{symbol}` is not an operator here", at + 1, hint)
    shown = text[at] if text[at].isprintable() else text[at].encode("unicode_escape").decode()
    return ExpressionError(f"`{shown}` has no meaning in an expression", at + 1)


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_MAX_DEPTH = 30
"""Levels of parentheses and signs."""


class ExpressionParser:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokenize(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        """The expression that the whole text is.

        Raises:
            ExpressionError: it is none.
        """
        node = self._choice()
        if self._next.kind != "end":
            raise self._unexpected("an operator")
        return node

    @property
    def _next(self) -> ExpressionToken:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> ExpressionToken | None:
        """The next token when it is one of these words or symbols."""
        token = self._next
        if token.kind not in ("word", "symbol") or token.text not in texts:
            return None
        self._at += 1
        return token

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise self._unexpected(f"`{text}`")

    def _unexpected(self, wanted: str) -> ExpressionError:
        return ExpressionError(f"expected {wanted}, found {self._next}", self._next.column)

    def _choice(self) -> Node:
        then = self._nested(self._or)
        token = self._take("if")
        if token is None:
            return then
        condition = self._or()
        self._expect("else")
        return Conditional(condition, then, self._nested(self._choice), token.column)

    def _or(self) -> Node:
        return self._row(self._and, lambda op, a, b: Logic("or", a, b, op.column), "or")

    def _and(self) -> Node:
        return self._row(self._not, lambda op, a, b: Logic("and", a, b, op.column), "and")

    def _not(self) -> Node:
        if token := self._take("not"):
            return Not(self._nested(self._not), token.column)
        return self._comparison()

    def _comparison(self) -> Node:
        """`a < b < c` is `a < b and b < c`, as in Python."""
        left = self._sum()
        if isinstance(left, Name) and (found := self._matched(left)) is not None:
            return found
        if isinstance(left, Query) and left.function == "item" and (given := self._given(left)):
            return given
        whole: Node | None = None
        while token := self._take(*_COMPARISONS):
            right = self._sum()
            operator: Any = token.text
            link = Compare(operator, left, right, token.column)
            whole = link if whole is None else Logic("and", whole, link, token.column)
            left = right
        return left if whole is None else whole

    def _matched(self, name: Name) -> Node | None:
        """`name is None`, `name == 'text'`, `name != 1.5`; None where something else follows."""
        if given := self._given(name):
            return given
        operator, *rest = self._tokens[self._at : self._at + 3]
        negative = bool(rest) and rest[0].text == "-"
        value = rest[negative] if len(rest) > negative else operator
        wanted = ("real",) if negative else ("real", "string")
        if operator.text not in ("==", "!=") or value.kind not in wanted:
            return None
        self._at += 2 + negative
        if value.kind == "string":
            match = Match(name.name, value.text[1:-1], name.column)
        else:
            number = float(value.text)
            if not math.isfinite(number):
                raise ExpressionError(f"{value} does not fit into 64 bits", value.column)
            match = Match(name.name, -number if negative else number, name.column)
        return match if operator.text == "==" else Not(match, name.column)

    def _given(self, leaf: Name | Query) -> Node | None:
        """`name is None`, `xs[1] is not None`; None where something else follows."""
        if not self._take("is"):
            return None
        negated = self._take("not")
        self._expect("None")
        given = Query("has", leaf.key, column=leaf.column)
        return given if negated else Not(given, leaf.column)

    def _sum(self) -> Node:
        return self._row(self._product, _arithmetic, "+", "-")

    def _product(self) -> Node:
        return self._row(self._sign, _arithmetic, "*", "//", "%")

    def _row(
        self,
        part: Callable[[], Node],
        join: Callable[[ExpressionToken, Node, Node], Node],
        *operators: str,
    ) -> Node:
        node = part()
        while token := self._take(*operators):
            node = join(token, node, part())
        return node

    def _sign(self) -> Node:
        if self._take("+"):
            return self._nested(self._sign)
        if token := self._take("-"):
            return self._negative(token)
        return self._alone()

    def _negative(self, sign: ExpressionToken) -> Node:
        """`-9223372036854775808` is one number, although it is not one without its sign."""
        token = self._next
        if token.kind == "number" and _value(token) == INT64_MAX + 1:
            self._at += 1
            return Number(-_value(token), sign.column)
        return Negative(self._nested(self._sign), sign.column)

    def _alone(self) -> Node:
        token = self._next
        if token.kind == "number":
            self._at += 1
            return _number(token)
        if token.kind == "name":
            self._at += 1
            if self._take("("):
                return self._call(token)
            return self._item(token) if self._take("[") else _name(token)
        if token.kind == "real":
            hint = "expressions are made of integers; `eps == 1e-5` asks for a float argument"
            raise ExpressionError(f"{token} is not an integer", token.column, hint)
        if token.kind == "string":
            hint = "a text is compared with an argument: `mode == 'fast'`"
            raise ExpressionError(f"{token} is not an integer", token.column, hint)
        if token.text == "None":
            hint = "ask `name is None` or `name is not None`"
            raise ExpressionError(f"{token} is not an integer", token.column, hint)
        if word := self._take("True", "False"):
            return Number(int(word.text == "True"), word.column, boolean=True)
        if self._take("("):
            inner = self._choice()
            self._expect(")")
            return inner
        raise self._unexpected("a value")

    def _item(self, name: ExpressionToken) -> Node:
        """`pad[0]`, behind the bracket."""
        axis = _axis(self._choice(), "the place in a list")
        self._expect("]")
        return Query("item", _name(name).name, axis, name.column)

    def _call(self, function: ExpressionToken) -> Node:
        if function.text == "len":
            return _query(function, self._arguments())
        if function.text not in FUNCTIONS and function.text not in QUERIES:
            known = ", ".join(f"`{name}`" for name in (*FUNCTIONS, *QUERIES))
            hint = f"functions: {known}"
            raise ExpressionError(f"{function} is not a function", function.column, hint)
        arguments = self._arguments()
        if function.text in FUNCTIONS:
            return _call(function, arguments)
        return _query(function, arguments)

    def _arguments(self) -> tuple[Node, ...]:
        if self._take(")"):
            return ()
        arguments = [self._choice()]
        while self._take(","):
            arguments.append(self._choice())
        self._expect(")")
        return tuple(arguments)

    def _nested(self, part: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ExpressionError("is nested too deeply", self._next.column, "name parts in `let`")
        node = part()
        self._depth -= 1
        return node


def _arithmetic(token: ExpressionToken, left: Node, right: Node) -> Node:
    operator: Any = token.text
    return BinaryOp(operator, left, right, token.column)


def _value(token: ExpressionToken) -> int:
    try:
        return int(token.text, 0)
    except ValueError:
        hint = "no zeros in front, no `_` at the end"
        raise ExpressionError(f"{token} is not an integer", token.column, hint) from None


def _number(token: ExpressionToken) -> Number:
    if _value(token) > INT64_MAX:
        raise ExpressionError(f"{token} does not fit into 64 bits", token.column)
    return Number(_value(token), token.column)


def _name(token: ExpressionToken) -> Name:
    if token.text in FUNCTIONS or token.text in QUERIES:
        hint = f"call it: `{token.text}(...)`"
        raise ExpressionError(f"{token} is a function", token.column, hint)
    return Name(token.text, token.column)


def _call(function: ExpressionToken, arguments: tuple[Node, ...]) -> Call:
    fewest, most = FUNCTIONS[function.text]
    if len(arguments) < fewest or (most is not None and len(arguments) > most):
        wanted = f"{fewest} or more" if most is None else str(fewest)
        raise ExpressionError(
            f"{function} takes {wanted} argument{'' if most == 1 else 's'}, not {len(arguments)}",
            function.column,
        )
    return Call(function.text, arguments, function.column)


def _query(function: ExpressionToken, arguments: tuple[Node, ...]) -> Query:
    wanted = QUERIES.get(function.text, 1)
    if len(arguments) != wanted:
        form = ("()", "(tensor)", "(tensor, dimension)")[wanted]
        message = f"{function} is written `{function.text}{form}`"
        raise ExpressionError(message, function.column)
    tensor = arguments[0] if arguments else None
    is_item = isinstance(tensor, Query) and tensor.function == "item"
    if tensor is not None and not (isinstance(tensor, Name) or is_item):
        what = "a list" if function.text == "len" else "a tensor"
        raise ExpressionError(f"{function} asks about {what}, by its name", tensor.column)
    axis = arguments[1] if wanted > 1 else None
    name = tensor.key if isinstance(tensor, (Name, Query)) else ""
    return Query(function.text, name, _axis(axis), function.column)


def _axis(node: Node | None, what: str = "a dimension") -> int | None:
    match node:
        case None:
            return None
        case Number(boolean=False):
            return node.value
        case Negative(operand=Number(boolean=False) as number):
            return -number.value
        case _:
            raise ExpressionError(f"{what} is written as a number", node.column)
