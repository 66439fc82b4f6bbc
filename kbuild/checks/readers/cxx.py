r"""C++ as far as a look for registrations needs it: code that is compiled, and macros.

Comments are gone, lines continued with `\` are one, and branches that no build compiles (`#if 0`,
`#ifndef` of a macro that every build defines) are left out. Nothing is expanded; branches that
depend on anything else are all read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_COMMENT_OR_LITERAL = re.compile(
    r"""
      (?P<comment> //(?:\\\r?\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\((?P<held>.*?)(?:\)(?P=fence)"|\Z) )
    | "(?:\\(?:\r?\n|.)|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'
    """,
    re.VERBOSE | re.DOTALL,
)
_TOKEN = re.compile(r'[^\W\d]\w*|"(?:\\.|[^"\\])*"|\.?\d[\w.\']*|::|->|\S')
_DIRECTIVE = re.compile(r"\s*\#\s*(?P<word>\w+)\s*(?P<rest>.*)", re.DOTALL)
_DEFINE = re.compile(r"(?P<name>\w+)(?P<parameters>\([^)]*\))?(?P<body>.*)", re.DOTALL)


@dataclass(frozen=True)
class Word:
    """One token of code."""

    text: str
    """As written; of a literal with its quotes."""
    line: int
    """1-based."""


@dataclass(frozen=True)
class Macro:
    """One `#define`."""

    name: str
    parameters: tuple[str, ...] | None
    """None for a macro without parentheses."""
    body: tuple[Word, ...]
    line: int


@dataclass(frozen=True)
class Code:
    """One file."""

    words: tuple[Word, ...]
    macros: tuple[Macro, ...]


def read_code(text: str, defined: str) -> Code:
    """Read one file; never fails, whatever the text is.

    Args:
        text: the file.
        defined: a macro that every build defines.
    """
    reader = _Reader(defined)
    for line, logical in _logical_lines(_COMMENT_OR_LITERAL.sub(_simplified, text)):
        reader.take(line, logical)
    return Code(tuple(reader.words), tuple(reader.macros))


def words_of(text: str, line: int) -> Iterator[Word]:
    """The tokens of a text that begins in that line."""
    for match in _TOKEN.finditer(text):
        yield Word(match[0], line + text.count("\n", 0, match.start()))


@dataclass
class _Branch:
    """One `#if` that is open."""

    is_read: bool
    rest_is_read: bool
    """Whether its `#else` is."""


@dataclass
class _Reader:
    defined: str
    words: list[Word] = field(default_factory=list)
    macros: list[Macro] = field(default_factory=list)
    branches: list[_Branch] = field(default_factory=list)

    def take(self, line: int, text: str) -> None:
        directive = _DIRECTIVE.match(text)
        if directive is None:
            self.words += words_of(text, line) if self._is_read else ()
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
            self.branches.append(_Branch(truth is not False, truth is not True))
        elif self.branches:
            branch = self.branches[-1]
            truth = None if word == "else" else self._truth(word.replace("el", "", 1), condition)
            branch.is_read = branch.rest_is_read and truth is not False
            branch.rest_is_read = branch.rest_is_read and truth is not True

    def _truth(self, word: str, condition: str) -> bool | None:
        """What a condition is in every build; None when that depends."""
        text = "".join(condition.split())
        if word in ("ifdef", "ifndef"):
            return (word == "ifdef") if text == self.defined else None
        known = {"0": False, "false": False, "1": True, "true": True}
        for form in (f"defined({self.defined})", f"defined{self.defined}"):
            known |= {form: True, f"!{form}": False}
        return known.get(text)

    def _define(self, text: str, line: int) -> None:
        match = _DEFINE.match(text)
        if match is not None:
            given = match["parameters"]
            names = None if given is None else tuple(p.strip() for p in given[1:-1].split(","))
            body = tuple(words_of(match["body"], line))
            self.macros.append(Macro(match["name"], names, body, line))


def _simplified(match: re.Match[str]) -> str:
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
