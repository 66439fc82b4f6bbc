"""From text to tokens, each with its column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from kbuild.languages.expression.errors import ExpressionError

Kind = Literal["number", "real", "string", "name", "word", "symbol", "end"]

WORDS = frozenset({"and", "or", "not", "if", "else", "is", "True", "False", "None"})
"""Names with a meaning of their own."""
MOST = 300
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
_FOREIGN = (
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
class Token:
    """A piece of the text."""

    kind: Kind
    text: str
    column: int

    def __str__(self) -> str:
        return f"`{self.text}`" if self.text else "the end"


def tokens(text: str) -> Iterator[Token]:
    """The tokens of an expression, an `end` last.

    Raises:
        ExpressionError: a character that no expression has, or too many tokens.
    """
    at = count = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unknown(text, at)
        if match.lastgroup != "space":
            yield _token(match)
            count += 1
        if count > MOST:
            raise ExpressionError(f"has more than {MOST} parts", at + 1, "name some in `let`")
        at = match.end()
    yield Token("end", "", len(text.rstrip()) + 1)


def _token(match: re.Match[str]) -> Token:
    kinds: tuple[Kind, ...] = ("number", "real", "string", "name", "symbol")
    word = match.group() in WORDS
    kind: Kind = "word" if word else kinds[kinds.index(cast("Kind", match.lastgroup))]
    return Token(kind, match.group(), match.start() + 1)


def _unknown(text: str, at: int) -> ExpressionError:
    for symbol, hint in _FOREIGN:
        if text.startswith(symbol, at):
            return ExpressionError(f"`{symbol}` is not an operator here", at + 1, hint)
    shown = text[at] if text[at].isprintable() else text[at].encode("unicode_escape").decode()
    return ExpressionError(f"`{shown}` has no meaning in an expression", at + 1)
