r"""C++ as tokens with places: no comments, no contents of literals, no `#error` prose.

Enough of the lexer of [lex.phases] for looking names up: raw strings, encoding prefixes, digit
separators and lines continued with `\`. Nothing is expanded and every branch of an `#if` is read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["include", "name", "number", "string", "sign"]

_SPLICE = r"\\\r?\n"
_BLANK = rf"(?:[ \t]|{_SPLICE})*"
_PATTERN = re.compile(
    rf"""
      (?P<comment> //(?:{_SPLICE}|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<include> ^{_BLANK}\#{_BLANK}(?:include(?:_next)?|import){_BLANK}(?=[<"]) )
      (?: <(?P<angled>[^>\n]+)> | "(?P<quoted>[^"\n]+)" )
    | (?P<prose> ^{_BLANK}\#{_BLANK}(?:error|warning)\b(?:{_SPLICE}|[^\n])* )
    | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{{0,16}})\(.*?(?:\)(?P=fence)"|\Z) )
    | (?P<string> (?:u8|[uUL])?"(?:{_SPLICE}|\\.|[^"\\\n])*"? )
    | (?P<character> (?:u8|[uUL])?'(?:{_SPLICE}|\\.|[^'\\\n])*'? )
    | (?P<number> \.?\d(?:[eEpP][+-]|'?\w|\.)* )
    | (?P<name> [^\W\d]\w* )
    | (?P<sign> ::|->|\S )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Token:
    """One token; `text` of an include is the header's name, of a literal it is empty."""

    kind: Kind
    text: str
    line: int
    """1-based."""
    column: int
    """1-based, in characters."""


def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a source, in order; never fails, whatever the text is."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return tuple(_tokens(text, starts))


def _tokens(text: str, starts: list[int]) -> Iterator[Token]:
    for match in _PATTERN.finditer(text):
        found = _classified(match)
        if found is not None:
            kind, content, at = found
            line = bisect_right(starts, at)
            yield Token(kind, content, line, at - starts[line - 1] + 1)


def _classified(match: re.Match[str]) -> tuple[Kind, str, int] | None:
    """Kind, text and position; None for what is no token."""
    if match["include"] is not None:
        header = match["angled"] or match["quoted"]
        return "include", header, match.end() - len(header) - 2
    if match["name"]:
        return "name", match["name"], match.start()
    if match["sign"]:
        return None if match["sign"] == "\\" else ("sign", match["sign"], match.start())
    if match["comment"] or match["prose"]:
        return None
    return "number" if match["number"] else "string", "", match.start()
