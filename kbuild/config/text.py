"""Reading `build.toml`: from a folder to a dictionary, or to the one reason why not."""

from __future__ import annotations

import re
from typing import Any

from kbuild.config.issue import Issue
from kbuild.config.place import display
from kbuild.errors import ConfigError
from kbuild.sourcetree import SourceTree
from kbuild.untrusted import parse_toml

_LIMIT = 4 << 20
"""Bytes of the longest `build.toml`."""
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_STATEMENT_HINT = "a line is `key = value`, `[table]` or a comment"
# The start of tomli's sentence -> what to do about it.
_HINTS = {
    "Invalid statement": _STATEMENT_HINT,
    "Invalid value": 'strings are written in quotes, lists as `["a", "b"]`',
    "Cannot overwrite": "the same key is written twice; keep one of them",
    "Cannot declare": "the same table is written twice; join the two",
    "Unclosed array": "a `[` has no `]`",
    "Expected '='": _STATEMENT_HINT,
    "Unescaped '\\\\'": "write `\\\\` for a backslash, or use 'single quotes'",
}


class UnreadableError(ConfigError):
    """The file cannot be read as TOML, so nothing more can be said about it."""


def read(tree: SourceTree, file: str) -> str:
    """The text of `file`.

    Raises:
        UnreadableError: it is missing, not a file, not UTF-8 or empty.
    """
    try:
        text = _decode(tree, file)
    except OSError as error:
        raise _unreadable(tree, file, f"cannot be read: {error.strerror}") from error
    if not text.strip():
        raise _unreadable(
            tree, file, "is empty", hint="`kbuild init` writes a project to start from"
        )
    return text


def _decode(tree: SourceTree, file: str) -> str:
    if tree.is_dir(file):
        raise _unreadable(tree, file, "is a folder, not a file")
    fault = tree.fault(file)
    if fault is not None:
        raise _unreadable(tree, file, fault.message, hint=fault.hint)
    if not tree.is_file(file):
        hint = "pass the folder of a kernel project, or start one with `kbuild init`"
        raise _unreadable(tree, file, "does not exist", hint=hint)
    data = tree.read_bytes(file, _LIMIT)
    if data.startswith(b"\xef\xbb\xbf"):
        raise _unreadable(tree, file, "starts with a byte-order mark", 1, "save it as plain UTF-8")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise _unreadable(tree, file, message, line, "save the file as UTF-8") from error


def parse(tree: SourceTree, file: str, text: str) -> dict[str, Any]:
    """The text as a dictionary.

    Raises:
        UnreadableError: it is not TOML; the line comes from tomli.
    """
    try:
        return parse_toml(text)
    except RecursionError as error:
        raise _unreadable(tree, file, "is nested too deeply") from error
    except ValueError as error:  # TOMLDecodeError, and numbers too long for Python
        issue = syntax_issue(text, error)
        raise _unreadable(tree, file, issue.message, issue.line, issue.hint) from error


def syntax_issue(text: str, error: ValueError) -> Issue:
    """What tomli says about the text, with the line apart."""
    words = str(error)
    position = _POSITION.search(words)
    if position is None:
        return Issue((), f"not valid TOML: {words}")
    message = words[: position.start()]
    line, column = position.groups()
    hint = next((hint for start, hint in _HINTS.items() if message.startswith(start)), "")
    if line is None:
        last = text.rstrip().count("\n") + 1
        return Issue((), f"not valid TOML: {message} before the end of the file", hint, line=last)
    return Issue((), f"not valid TOML: {message} (column {column})", hint, line=int(line))


def _unreadable(
    tree: SourceTree, file: str, message: str, line: int = 0, hint: str = ""
) -> UnreadableError:
    from kbuild.errors import Problem

    return UnreadableError([Problem(display(tree.root, file), line, "", message, hint)])
