"""The tokens of C++ sources, and what the preprocessor leaves of them, without a compiler.

Nothing is expanded and no file is followed. Reading never fails, whatever the text is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, cast

CxxTokenKind = Literal["include", "name", "number", "string", "sign"]

_SPLICE = r"\\\r?\n"
_COMMENT = rf"//(?:{_SPLICE}|[^\n])*|/\*.*?(?:\*/|\Z)"
_LITERAL = rf"""
    (?:u8|[uUL])?
    (?: R"(?P<fence>[^()\\\s]{{0,16}})\(.*?(?:\)(?P=fence)"|\Z)
      | "(?:{_SPLICE}|\\.|[^"\\\n])*"?
      | '(?:{_SPLICE}|\\.|[^'\\\n])*'? )
"""
_CODE = rf"""
      (?P<name> (?!(?:u8|[uUL])?(?:R"|["']))[^\W\d]\w* )
    | (?P<comment> {_COMMENT} )
    | (?P<string> {_LITERAL} )
    | (?P<number> \.?\d(?:[eEpP][+-]|'?\w|\.)* )
    | (?P<splice> {_SPLICE} )
    | (?P<sign> ::|->|&&|\|\||[!=<>]=|\S )
"""
# A comment here ends at its first `*/`, whatever follows: nothing is tried twice.
_GAP = rf"(?:[ \t]|{_SPLICE}|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*"
# Literals have a fence of another name here: a pattern has each name of a group once.
_DIRECTIVE = rf"""
    (?P<directive> ^(?<!\\\n)(?<!\\\r\n){_GAP}\#{_GAP}
      (?: (?P<include> include(?:_next)?|import )\b{_GAP}(?P<header> <[^>\n]+>|"[^"\n]+" )
        | (?P<word> \w* ) )
      (?: {_LITERAL.replace("fence", "directive_fence")} | \w+ | [^\w\n"'/\\]+ | {_COMMENT}
        | {_SPLICE} | [^\n] )* )
"""
_FLAGS = re.VERBOSE | re.DOTALL | re.MULTILINE
_IN_DIRECTIVE = re.compile(_CODE, _FLAGS)
_IN_FILE = re.compile(f"{_DIRECTIVE} | {_CODE}", _FLAGS)
_NO_TOKENS = ("comment", "splice")
_MAX_CONDITION_TOKENS = 200
"""Tokens of a condition that is read: it is read recursively."""
_CONSTANT_CONDITIONS = {"0": False, "false": False, "1": True, "true": True}


class CxxToken(NamedTuple):
    """One token, as written: a literal with its quotes, an include with those of its header."""

    kind: CxxTokenKind
    text: str
    line: int
    """1-based."""
    column: int
    """1-based, in characters."""
    maybe: bool = False
    """True in a branch that some builds leave out."""


def cxx_tokens(text: str) -> tuple[CxxToken, ...]:
    """The tokens of a source in order, whatever its conditions say; those of directives too.

    An include is one token. The text of `#error` and `#warning` is left out.
    """
    source, tokens = _SourceText(text), []
    for match in _IN_FILE.finditer(text):
        if match.lastgroup != "directive":
            if match.lastgroup not in _NO_TOKENS:
                tokens.append(source.token(match))
        elif match["include"]:
            line, column = source.place(match.start("header"))
            tokens.append(CxxToken("include", match["header"], line, column))
        elif match["word"] not in ("error", "warning"):
            tokens += source.tokens_within(match.start(), match.end())
    return tuple(tokens)


def read_cxx(text: str, *defined: str, undefined: Collection[str] = ()) -> tuple[CxxToken, ...]:
    """The tokens of one file without directives and the branches that no build compiles.

    Args:
        text: the file.
        defined: macros that every build defines.
        undefined: macros that no build defines.
    """
    known = dict.fromkeys(undefined, False) | dict.fromkeys(defined, True)
    return tuple(_read(text, known).tokens)


def defined_macros(text: str) -> set[str]:
    """The names of the macros that one file defines, in a branch that some build compiles."""
    return _read(text, {}).macros


def _read(text: str, macros_known: Mapping[str, bool]) -> _CxxReader:
    reader = _CxxReader(_SourceText(text), macros_known)
    for match in _IN_FILE.finditer(text):
        if match.lastgroup == "directive":
            reader.take_directive(match)
        elif reader.is_read and match.lastgroup not in _NO_TOKENS:
            reader.tokens.append(reader.source.token(match, maybe=reader.maybe))
    return reader


@lru_cache(maxsize=64)
def tokens_of(text: str) -> tuple[CxxToken, ...]:
    """The tokens that some build compiles, for those who look at the same text often."""
    return read_cxx(text)


def split_tokens(tokens: Sequence[CxxToken], sign: str) -> Iterator[Sequence[CxxToken]]:
    """The parts between signs that are in no brackets; nothing of nothing."""
    part: list[CxxToken] = []
    depth = 0
    for token in tokens:
        if token.text == sign and depth == 0:
            yield part
            part = []
            continue
        # There is no token `>>`: each of its signs closes a template.
        depth += (token.text in "([{<") - (token.text in ")]}>")
        part.append(token)
    if part:
        yield part


def closing_sign(tokens: Sequence[CxxToken], opening: int, signs: str = "()") -> int:
    """The index where the sign at a place is closed; behind the last token where it is not."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == signs[0]) - (tokens[at].text == signs[1])
        if depth == 0:
            return at
    return len(tokens)


def joined_tokens(tokens: Sequence[CxxToken]) -> str:
    """The tokens as a line of C++: words apart, signs not."""
    text = ""
    for token in tokens:
        is_word = bool(text) and (text[-1].isalnum() or text[-1] == "_")
        text += f" {token.text}" if is_word and token.text[0].isalnum() else token.text
    return text


class _SourceText:
    """A text whose positions have lines and columns."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, at: int) -> tuple[int, int]:
        """Line and column, 1-based."""
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def token(self, match: re.Match[str], *, maybe: bool = False) -> CxxToken:
        """The token that was matched."""
        line, column = self.place(match.start())
        return CxxToken(cast("CxxTokenKind", match.lastgroup), match[0], line, column, maybe)

    def tokens_within(self, start: int, end: int) -> list[CxxToken]:
        """The tokens of a part of the text that has no directives."""
        matches = _IN_DIRECTIVE.finditer(self._text, start, end)
        return [self.token(match) for match in matches if match.lastgroup not in _NO_TOKENS]


@dataclass
class _ConditionalBranch:
    """One `#if` that is open."""

    is_read: bool
    rest_is_read: bool
    """True when its `#else` is read."""
    is_sure: bool
    """True when it is known which of the two is read."""


@dataclass
class _CxxReader:
    source: _SourceText
    macros_known: Mapping[str, bool]
    """True for macros that every build defines, False for those that none does."""
    tokens: list[CxxToken] = field(default_factory=list)
    branches: list[_ConditionalBranch] = field(default_factory=list)
    is_read: bool = True
    maybe: bool = False
    has_includes: bool = False
    macros: set[str] = field(default_factory=set)
    guard: str = ""
    """The macro of an `#ifndef` before anything else: an include guard if it is defined next."""

    def take_directive(self, match: re.Match[str]) -> None:
        if match["include"]:
            self.has_includes = self.has_includes or self.is_read
            return
        word = match["word"]
        tokens = self.source.tokens_within(match.end("word"), match.end())
        if word.startswith(("if", "el", "end")):
            self._branch(word, [token.text for token in tokens])
        elif word == "define" and self.is_read and tokens and tokens[0].kind == "name":
            self._define(tokens[0].text)
        self.is_read = all(branch.is_read for branch in self.branches)
        self.maybe = not all(branch.is_sure for branch in self.branches)

    def _branch(self, word: str, condition: list[str]) -> None:
        if word == "endif":
            # A slice, because a damaged text may have an `#endif` without an `#if`.
            del self.branches[-1:]
        elif word.startswith("if"):
            if word == "ifndef" and condition and self._is_empty and not self.branches:
                self.guard = condition[0]
            truth = self._truth(word, condition)
            self.branches.append(
                _ConditionalBranch(truth is not False, truth is not True, truth is not None)
            )
        elif self.branches:
            branch = self.branches[-1]
            # An `#elifdef` is an `#ifdef` of what is left.
            truth = None if word == "else" else self._truth(word.replace("el", "", 1), condition)
            branch.is_read = branch.rest_is_read and truth is not False
            branch.is_sure &= word == "else" or truth is not None
            branch.rest_is_read = branch.rest_is_read and truth is not True

    @property
    def _is_empty(self) -> bool:
        return not (self.tokens or self.macros or self.has_includes)

    def _truth(self, word: str, condition: list[str]) -> bool | None:
        """The value of a condition in every build; None when that depends."""
        if word in ("ifdef", "ifndef"):
            known = self.macros_known.get(condition[0]) if condition else None
            return known if known is None or word == "ifdef" else not known
        return _Condition(condition, self.macros_known).truth()

    def _define(self, name: str) -> None:
        # What an include guard encloses is compiled in every build.
        if len(self.branches) == 1 and self._is_empty and name == self.guard:
            self.branches[0].is_sure = True
        self.macros.add(name)


class _Condition:
    """A condition of `#if`, in which what is not known may be either."""

    def __init__(self, tokens: Sequence[str], macros_known: Mapping[str, bool]) -> None:
        self._tokens = [*tokens]
        self._known = macros_known

    def truth(self) -> bool | None:
        """The value in every build; None when that depends, or is not understood."""
        truth = self._either() if len(self._tokens) <= _MAX_CONDITION_TOKENS else None
        return None if self._tokens else truth

    def _either(self) -> bool | None:
        truth = self._both()
        while self._take("||"):
            # It is read even where the result is known, because its tokens have to be taken.
            other = self._both()
            truth = True if True in (truth, other) else None if None in (truth, other) else False
        return truth

    def _both(self) -> bool | None:
        truth = self._operand()
        while self._take("&&"):
            other = self._operand()
            truth = False if False in (truth, other) else None if None in (truth, other) else True
        return truth

    def _operand(self) -> bool | None:
        if self._take("!"):
            truth = self._operand()
            return None if truth is None else not truth
        if self._take("("):
            truth = self._either()
            self._take(")")
            return truth
        if self._take("defined"):
            is_open = self._take("(")
            name = self._tokens.pop(0) if self._tokens else ""
            if is_open:
                self._take(")")
            return self._known.get(name)
        token = self._tokens.pop(0) if self._tokens else ""
        # A macro without a value counts as 0, and one with a value may have any.
        return False if self._known.get(token) is False else _CONSTANT_CONDITIONS.get(token)

    def _take(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        del self._tokens[0]
        return True
