"""The pieces of a schema's text, read one after the other."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOKEN = re.compile(
    r"(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![A-Za-z0-9_.])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<symbol>->|::|[()\[\],.?!*=|])",
    re.ASCII,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}


class SchemaError(ValueError):
    """A text that is no schema; says where, and what to write instead."""

    def __init__(self, message: str, column: int, hint: str = "") -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """1-based."""
        self.hint = hint


class Tokens:
    """A position in the text; each method takes what it names, or raises."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._skip(0)

    def _skip(self, at: int) -> None:
        space = _SPACE.match(self._text, at)
        self.at = space.end() if space else at
        self._match = _TOKEN.match(self._text, self.at)

    @property
    def column(self) -> int:
        """Where the next token starts."""
        return self.at + 1

    @property
    def kind(self) -> str:
        """`number`, `name`, `string`, `symbol`, or nothing at the end and before what is none."""
        return str(self._match.lastgroup) if self._match else ""

    @property
    def text(self) -> str:
        """The next token, the next character when it is none, or nothing at the end."""
        return self._match.group() if self._match else self._text[self.at : self.at + 1]

    def take(self, *symbols: str) -> str:
        """The next symbol when it is one of these, or an empty string."""
        if self.kind != "symbol" or self.text not in symbols:
            return ""
        return self._advance()

    def expect(self, symbol: str, hint: str = "") -> None:
        """Step over a symbol that has to come."""
        if not self.take(symbol):
            raise self.unexpected(f"`{symbol}`", hint)

    def name(self, what: str) -> str:
        """The next name."""
        if self.kind != "name":
            raise self.unexpected(what)
        return self._advance()

    def literal(self, kind: str) -> str:
        """The next number or string as it is written, or an empty string."""
        return self._advance() if self.kind == kind else ""

    def end(self) -> None:
        """Nothing may follow."""
        if self.at < len(self._text):
            raise self.unexpected("the end")

    def _advance(self) -> str:
        text = self.text
        self._skip(self.at + len(text))
        return text

    def unexpected(self, wanted: str, hint: str = "") -> SchemaError:
        """The error that something else should stand here."""
        found = f"`{self.text}`" if self.text else "the end"
        return SchemaError(f"expected {wanted}, found {found}", self.column, hint)


def unquoted(literal: str) -> str | None:
    """What a quoted string says, None when it has an escape that schemas do not know."""
    escapes = _ESCAPE.findall(literal)
    if not set(escapes) <= _ESCAPES.keys():
        return None
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], literal[1:-1])
