"""C++ sources as tokens and macros, without a compiler.

Comments are removed and continued lines joined; nothing is expanded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

_COMMENT_OR_LITERAL = re.compile(
    r"""
      (?P<comment> //(?:\\\r?\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\((?P<held>.*?)(?:\)(?P=fence)"|\Z) )
    | "(?:\\(?:\r?\n|.)|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'
    """,
    re.VERBOSE | re.DOTALL,
)
_CODE_TOKEN = re.compile(r'[^\W\d]\w*|"(?:\\.|[^"\\])*"|\.?\d[\w.\']*|::|->|\S')
_DIRECTIVE = re.compile(r"\s*\#\s*(?P<word>\w+)\s*(?P<rest>.*)", re.DOTALL)
_CONDITION = re.compile(r"\w+|&&|\|\||[!=<>]=|\S")
_MAX_CONDITION_WORDS = 200
"""Words of a condition that is read: it is read recursively."""
_CONSTANT_CONDITIONS = {"0": False, "false": False, "1": True, "true": True}
_DEFINE = re.compile(r"(?P<name>\w+)(?P<parameters>\([^)]*\))?(?P<body>.*)", re.DOTALL)


@dataclass(frozen=True)
class CodeToken:
    """One token of code."""

    text: str
    """As written; of a literal with its quotes."""
    line: int
    """1-based."""
    maybe: bool = False
    """In a branch that some builds leave out."""


@dataclass(frozen=True)
class Macro:
    """One `#define`."""

    name: str
    parameters: tuple[str, ...] | None
    """None for a macro without parentheses."""
    body: tuple[CodeToken, ...]
    line: int


@dataclass(frozen=True)
class CxxCode:
    """One file."""

    words: tuple[CodeToken, ...]
    macros: tuple[Macro, ...]


def read_cxx(text: str, *defined: str, undefined: Collection[str] = ()) -> CxxCode:
    """Read one file; never fails, whatever the text is.

    Args:
        text: the file.
        defined: macros that every build defines.
        undefined: macros that no build defines.
    """
    reader = _CxxReader(dict.fromkeys(undefined, False) | dict.fromkeys(defined, True))
    for line, logical in _logical_lines(_COMMENT_OR_LITERAL.sub(_without_comment, text)):
        reader.take(line, logical)
    return CxxCode(tuple(reader.words), tuple(reader.macros))


def code_tokens(text: str, line: int, *, maybe: bool = False) -> Iterator[CodeToken]:
    """The tokens of a text that begins in that line."""
    at = 0
    for match in _CODE_TOKEN.finditer(text):
        line += text.count("\n", at, at := match.start())
        yield CodeToken(match[0], line, maybe)


@dataclass
class _ConditionalBranch:
    """One `#if` that is open."""

    is_read: bool
    rest_is_read: bool
    """Whether its `#else` is."""
    is_sure: bool
    """Whether it is known which of the two is."""


@dataclass
class _CxxReader:
    macros_known: Mapping[str, bool]
    """Whether a macro is defined, for those of which every build says the same."""
    words: list[CodeToken] = field(default_factory=list)
    macros: list[Macro] = field(default_factory=list)
    branches: list[_ConditionalBranch] = field(default_factory=list)

    def take(self, line: int, text: str) -> None:
        directive = _DIRECTIVE.match(text)
        if directive is None:
            maybe = not all(branch.is_sure for branch in self.branches)
            self.words += code_tokens(text, line, maybe=maybe) if self._is_read else ()
        elif directive["word"].startswith(("if", "el", "end")):
            self._branch(directive["word"], directive["rest"])
        elif directive["word"] == "define" and self._is_read:
            self._define(directive["rest"], line)

    @property
    def _is_read(self) -> bool:
        return all(branch.is_read for branch in self.branches)

    def _branch(self, word: str, condition: str) -> None:
        if word == "endif":
            del self.branches[-1:]
        elif word.startswith("if"):
            truth = self._truth(word, condition)
            self.branches.append(
                _ConditionalBranch(truth is not False, truth is not True, truth is not None)
            )
        elif self.branches:
            branch = self.branches[-1]
            truth = None if word == "else" else self._truth(word.replace("el", "", 1), condition)
            branch.is_read = branch.rest_is_read and truth is not False
            branch.is_sure &= word == "else" or truth is not None
            branch.rest_is_read = branch.rest_is_read and truth is not True

    def _truth(self, word: str, condition: str) -> bool | None:
        """What a condition is in every build; None when that depends."""
        if word in ("ifdef", "ifndef"):
            known = self.macros_known.get(condition.strip())
            return known if known is None or word == "ifdef" else not known
        return _Condition(_CONDITION.findall(condition), self.macros_known).truth()

    def _define(self, text: str, line: int) -> None:
        match = _DEFINE.match(text)
        if match is not None:
            given = match["parameters"]
            names = None if given is None else tuple(p.strip() for p in given[1:-1].split(","))
            body = tuple(code_tokens(match["body"], line))
            self.macros.append(Macro(match["name"], names, body, line))


class _Condition:
    """A condition of `#if`, in which what is not known may be either."""

    def __init__(self, words: Sequence[str], macros_known: Mapping[str, bool]) -> None:
        self._words = [*words]
        self._known = macros_known

    def truth(self) -> bool | None:
        """What it is in every build; None when that depends, or is not understood."""
        found = self._either() if len(self._words) <= _MAX_CONDITION_WORDS else None
        return None if self._words else found

    def _either(self) -> bool | None:
        found = self._both()
        while self._taken("||"):
            other = self._both()
            found = True if True in (found, other) else None if None in (found, other) else False
        return found

    def _both(self) -> bool | None:
        found = self._one()
        while self._taken("&&"):
            other = self._one()
            found = False if False in (found, other) else None if None in (found, other) else True
        return found

    def _one(self) -> bool | None:
        if self._taken("!"):
            found = self._one()
            return None if found is None else not found
        if self._taken("("):
            found = self._either()
            self._taken(")")
            return found
        if self._taken("defined"):
            is_open = self._taken("(")
            name = self._words.pop(0) if self._words else ""
            if is_open:
                self._taken(")")
            return self._known.get(name)
        word = self._words.pop(0) if self._words else ""
        # A macro without a value counts as 0, and one with a value may have any.
        return False if self._known.get(word) is False else _CONSTANT_CONDITIONS.get(word)

    def _taken(self, word: str) -> bool:
        if self._words[:1] != [word]:
            return False
        del self._words[0]
        return True


def _without_comment(match: re.Match[str]) -> str:
    """A comment as blanks, a raw string as a plain one; with the newlines that were in it."""
    newlines = "\n" * match[0].count("\n")
    if match["comment"] is not None:
        return f" {newlines}"
    if match["raw"] is None:
        return match[0]
    held = match["held"].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{held}"{newlines}'


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Runs of code and single directives, each with the number of its first line."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first = at
        while lines[at].rstrip("\r").endswith("\\") and at + 1 < len(lines):
            at += 1
        at += 1
        yield first + 1, "\n".join(part.rstrip("\r").removesuffix("\\") for part in lines[first:at])


CxxTokenKind = Literal["include", "name", "number", "string", "sign"]

_SPLICE = r"\\\r?\n"
_BLANK = rf"(?:[ \t]|{_SPLICE})*"
_TOKEN_PATTERN = re.compile(
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
class CxxToken:
    """One token; `text` of an include is the header's name, of a literal it is empty."""

    kind: CxxTokenKind
    text: str
    line: int
    """1-based."""
    column: int
    """1-based, in characters."""


def cxx_tokens(text: str) -> tuple[CxxToken, ...]:
    """The tokens of a source, in order; never fails, whatever the text is."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return tuple(_iter_tokens(text, starts))


def _iter_tokens(text: str, starts: list[int]) -> Iterator[CxxToken]:
    for match in _TOKEN_PATTERN.finditer(text):
        found = _classify(match)
        if found is not None:
            kind, content, at = found
            line = bisect_right(starts, at)
            yield CxxToken(kind, content, line, at - starts[line - 1] + 1)


def _classify(match: re.Match[str]) -> tuple[CxxTokenKind, str, int] | None:
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
