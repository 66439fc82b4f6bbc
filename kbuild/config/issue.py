"""One thing wrong at a key path, before anybody has looked up the line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbuild.config.suggest import printable
from kbuild.errors import Severity

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
