"""Finds the lines of key paths and list elements in a TOML text.

Used only when there is something to say about a file, and only on text that tomli accepts: the scan
follows TOML's structure (headers, dotted and quoted keys, arrays over several lines, inline tables,
all four kinds of strings) without judging it again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from kbuild.project.config.issue import Issue, KeyPath, dotted, printable
from kbuild.system.errors import Problem

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!"")|"(?="""))*"""'
    r"|'''(?:[^']|'(?!'')|'(?='''))*'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


class SourceSpan(NamedTuple):
    """A part of one line."""

    line: int
    """1-based; 0 when the text has no such place."""
    column: int = 0
    """1-based."""
    length: int = 0
    source: str = ""
    """Text of the line."""


def source_line(text: str, line: int) -> str:
    """The text of a 1-based line; empty where there is none."""
    lines = text.split("\n")
    return lines[line - 1] if 0 < line <= len(lines) else ""


class LineIndex:
    """Places in one text, by key path."""

    def __init__(self, text: str) -> None:
        self._scan = _TomlScanner(text)
        self._lines = self._scan.lines

    def span(self, path: KeyPath, *, is_about_key: bool = False) -> SourceSpan:
        """The value at the path, or its key, or the nearest table around it."""
        while path and path not in self._lines:
            path, is_about_key = path[:-1], True
        if not path:
            return SourceSpan(0)
        key, value = self._scan.keys.get(path), self._scan.values.get(path)
        # A span lies in one line: for a value of several lines, the key is marked.
        if value and "\n" in self._scan.text[slice(*value)]:
            value = None
        place = key or value if is_about_key else value or key
        if place is None:
            return SourceSpan(self._lines[path], source=source_line(self._scan.text, self.of(path)))
        return self._scan.span(*place)

    def of(self, path: KeyPath) -> int:
        """The line of the path, or of the nearest table around it; 0 when there is none."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 0

    def __contains__(self, path: KeyPath) -> bool:
        return path in self._lines


def problem_at(issue: Issue, lines: LineIndex, file: str) -> Problem:
    """An issue of the indexed text, which is that of `file`, with its place."""
    return problem_in(issue, lines.span(issue.path, is_about_key=issue.is_about_key), file)


def problem_in(issue: Issue, span: SourceSpan, file: str, *, key: bool = True) -> Problem:
    """An issue as a problem at a place."""
    return Problem(
        file,
        span.line,
        dotted(issue.path) if key else "",
        printable(issue.message),
        printable(issue.hint),
        issue.severity,
        span.column,
        span.length,
        span.source,
    )


class _TomlScanner:
    """One pass over the text; `lines` holds the first line of each path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self.keys: dict[KeyPath, tuple[int, int]] = {}
        """Offsets of the key, or of the table's header."""
        self.values: dict[KeyPath, tuple[int, int]] = {}
        """Offsets of the value."""
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._elements: dict[KeyPath, int] = {}
        self._document()

    def _document(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self.text):
            before = self.at
            if self.text[self.at] == "[":
                array = self.text.startswith("[[", self.at)
                line, start = self._line(), self.at
                self.at += 2 if array else 1
                keys = self._key()
                self.at = self.text.find("]", self.at) + (2 if array else 1)
                header = (start, self.at)
                path: KeyPath = ()
                for position, key in enumerate(keys):
                    path = (*path, key)
                    self.lines.setdefault(path, line)
                    self.keys.setdefault(path, header)
                    last = position == len(keys) - 1
                    if array and last:
                        self._elements[path] = self._elements.get(path, -1) + 1
                    if path in self._elements:
                        path = (*path, self._elements[path])
                        self.lines.setdefault(path, line)
                        self.keys.setdefault(path, header)
                # `[a]` after `[a.b]` is where the table itself is written.
                self.lines[path], self.keys[path] = line, header
                table = path
            else:
                self._pair(table)
            if self.at == before:  # not TOML; stop rather than spin
                return

    def _pair(self, table: KeyPath) -> None:
        line, start = self._line(), self.at
        path = table
        keys = self._key()
        for key in keys:
            path = (*path, key)
            self.lines.setdefault(path, line)
            self.keys.setdefault(path, (start, start + len(self.text[start : self.at].rstrip())))
        self._skip(_SPACE)
        if self.text.startswith("=", self.at):
            self.at += 1
            self._value(path)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            parts.append(self._key_part())
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def _key_part(self) -> str:
        match = _STRING.match(self.text, self.at) or _BARE_KEY.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return _unquoted(match.group())

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        start = self.at
        opening = self.text[start : start + 1]
        if opening == "[":
            self.at += 1
            index = 0
            while self._more("]"):
                element = (*path, index)
                self.lines[element] = self._line()
                self._value(element)
                index += 1
        elif opening == "{":
            self.at += 1
            while self._more("}"):
                self._pair(path)
        else:
            match = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            self.at = match.end() if match else len(self.text)
        self.values[path] = (start, start + len(self.text[start : self.at].rstrip()))

    def _more(self, closing: str) -> bool:
        """Step over a separator; False after the closing bracket or the end of the text."""
        self._skip(_BLANK)
        if self.text.startswith(",", self.at):
            self.at += 1
            self._skip(_BLANK)
        if self.at >= len(self.text) or self.text[self.at] in "]}":
            self.at += self.text.startswith(closing, self.at)
            return False
        return True

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def _line(self) -> int:
        return bisect_right(self._breaks, self.at - 1) + 1

    def span(self, start: int, end: int) -> SourceSpan:
        """A part of the text between two offsets in one line."""
        first = self.text.rfind("\n", 0, start) + 1
        last = self.text.find("\n", start)
        source = self.text[first : last if last >= 0 else len(self.text)]
        line = bisect_right(self._breaks, start - 1) + 1
        return SourceSpan(line, start - first + 1, end - start, source)


def _unquoted(token: str) -> str:
    if token.startswith("'"):
        return token[1:-1]
    if not token.startswith('"'):
        return token
    if "\\" not in token:
        return token[1:-1]
    import tomli

    try:
        return str(tomli.loads(f"key = {token}")["key"])
    except tomli.TOMLDecodeError:
        return token[1:-1]
