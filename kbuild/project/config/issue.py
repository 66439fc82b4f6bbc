"""One problem at a key path before its line is known, and the wording of hints.

Suggestions, allowed values, TOML types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from types import MappingProxyType
from typing import Any

from kbuild.system.errors import Severity

# bool before int and datetime before date: each is a subclass of the other.
_TOML_TYPES: tuple[tuple[type, str], ...] = (
    (str, "a string"),
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a float"),
    (list, "a list"),
    (dict, "a table"),
    (datetime, "a date and time"),
    (date, "a date"),
    (time, "a time"),
)


def toml_type(value: Any) -> str:
    """The type of a TOML value, with its article: `a string`."""
    return next((name for kind, name in _TOML_TYPES if isinstance(value, kind)), "a value")


def printable(text: str) -> str:
    """The text with line breaks, escape sequences and the like written out: it came from a file."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


_SHORT_LIST = 8
"""Choices that are all listed beside a guess."""


def closest(
    word: str, choices: Iterable[str], other_names: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """The choice that `word` was probably meant to be.

    Args:
        word: what somebody wrote.
        choices: what is allowed.
        other_names: what else choices are called, in lower case -> the choice.
    """
    from difflib import get_close_matches

    folded = word.lower().replace("_", "-")[:100]
    by_folded = {choice.lower().replace("_", "-"): choice for choice in choices}
    if folded not in by_folded and other_names.get(folded) in by_folded.values():
        return other_names[folded]
    matches = get_close_matches(folded, list(by_folded), n=1)
    return by_folded[matches[0]] if matches else None


def did_you_mean(
    word: str, choices: Iterable[str], other_names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """``did you mean `cuda`?`` or an empty string."""
    choice = closest(word, choices, other_names)
    return f"did you mean `{choice}`?" if choice else ""


def listed(choices: Iterable[str]) -> str:
    """The choices in backticks, separated by commas."""
    return ", ".join(f"`{choice}`" for choice in choices)


def one_of(
    word: str, choices: Iterable[str], other_names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The probable meaning, then everything that is allowed unless the list is long."""
    names = sorted(choices)
    if not names:
        return ""
    guess = did_you_mean(word, names, other_names)
    if guess and len(names) > _SHORT_LIST:
        return guess
    return f"{guess} allowed: {listed(names)}" if guess else f"allowed: {listed(names)}"


KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the file: `("kernel", "relu", "src", 0)`."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Issue:
    """A problem of `build.toml` by key path, or of another file by line."""

    path: KeyPath
    message: str
    hint: str = ""
    severity: Severity = "error"
    file: str = ""
    """Path relative to the project when the problem is in another file than `build.toml`."""
    line: int = 0
    """1-based line in `file`."""
    is_about_key: bool = False
    """The key itself is wrong, whatever its value is."""


def dotted(path: KeyPath) -> str:
    """`kernel.relu.src`: a closing list index is left out, since the line points at the element."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_quoted(part)}"
    return text.removeprefix(".")


def _quoted(key: str) -> str:
    if _BARE_KEY.fullmatch(key):
        return key
    return '"' + printable(key).replace('"', '\\"') + '"'
