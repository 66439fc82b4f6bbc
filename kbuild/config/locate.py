"""Which line of a TOML text each key path and list element is on.

Used only when there is something to say about a file, and only on text that tomli accepts: the scan
follows TOML's structure (headers, dotted and quoted keys, arrays over several lines, inline tables,
all four kinds of strings) without judging it again.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from kbuild.config.issue import KeyPath

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


class LineIndex:
    """Line numbers of one text, by key path."""

    def __init__(self, text: str) -> None:
        self._lines = _TomlScanner(text).lines

    def of(self, path: KeyPath) -> int:
        """The line of the path, or of the nearest table around it; 0 when there is none."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 0

    def __contains__(self, path: KeyPath) -> bool:
        return path in self._lines


class _TomlScanner:
    """One pass over the text; `lines` holds the first line of each path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._elements: dict[KeyPath, int] = {}
        self._document()

    def _document(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self.text):
            before = self.at
            if self.text[self.at] == "[":
                array = self.text.startswith("[[", self.at)
                line = self._line()
                self.at += 2 if array else 1
                keys = self._key()
                self.at = self.text.find("]", self.at) + (2 if array else 1)
                path: KeyPath = ()
                for position, key in enumerate(keys):
                    path = (*path, key)
                    self.lines.setdefault(path, line)
                    last = position == len(keys) - 1
                    if array and last:
                        self._elements[path] = self._elements.get(path, -1) + 1
                    if path in self._elements:
                        path = (*path, self._elements[path])
                        self.lines.setdefault(path, line)
                # `[a]` after `[a.b]` is where the table itself is written.
                self.lines[path] = line
                table = path
            else:
                self._pair(table)
            if self.at == before:  # not TOML; stop rather than spin
                return

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for key in self._key():
            path = (*path, key)
            self.lines.setdefault(path, line)
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
        opening = self.text[self.at : self.at + 1]
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
