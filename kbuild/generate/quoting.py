"""Values as the generated languages write them: CMake arguments, command lines, TOML."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_./:=+-]+")


def argument(text: str) -> str:
    """One CMake argument, quoted when it must be; also one element of a CMake list."""
    if _BARE.fullmatch(text):
        return text
    return '"' + escaped(text).replace(";", "\\\\;") + '"'


def arguments(texts: Iterable[str]) -> str:
    """CMake arguments, each with a space in front."""
    return "".join(f" {argument(text)}" for text in texts)


def escaped(text: str) -> str:
    """The inside of a quoted CMake argument."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")


def command_line(flags: Iterable[str]) -> str:
    """Flags as a POSIX shell takes them, for CMake's `SHELL:`; inside a quoted argument."""
    return escaped(shlex.join(flags))


def bracketed(text: str) -> str:
    """One CMake argument as it is, over several lines."""
    ends = (f"]{'=' * marks}]" for marks in count(1))
    end = next(end for end in ends if f"{text}{end}".index(end) == len(text))
    return f"[{end[1:-1]}[\n{text}{end}"


def in_genex(text: str) -> str:
    """The same text inside `$<...:text>`, where `>` would end it."""
    return text.replace(">", "$<ANGLE-R>")


def toml(value: Any) -> str:
    """A string or a list of strings; JSON, which TOML and YAML read alike."""
    return json.dumps(value if isinstance(value, str) else list(value), ensure_ascii=False)


FILTERS: Mapping[str, Callable[..., str]] = {
    "argument": argument,
    "arguments": arguments,
    "bracketed": bracketed,
    "command_line": command_line,
    "in_genex": in_genex,
    "toml": toml,
}
