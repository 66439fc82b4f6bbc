"""Finds and renders the templates, and quotes values for CMake, shells and TOML."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


_PACKAGE = Path(__file__).parents[1]


@cache
def template_root() -> Path:
    """The folder of all templates."""
    installed = _PACKAGE / "templates"
    return installed if installed.is_dir() else _PACKAGE.parent / "templates"


def read(name: str) -> str:
    """A file as it is; `name` is a POSIX path below `templates/`."""
    return (template_root() / name).read_text("utf-8")


def exists(name: str) -> bool:
    """True when there is such a file."""
    return (template_root() / name).is_file()


def names(folder: str, pattern: str) -> tuple[str, ...]:
    """Names of the files in one folder that match a glob, sorted."""
    paths = (template_root() / folder).glob(pattern)
    return tuple(sorted(f"{folder}/{path.name}" for path in paths if path.is_file()))


def render(name: str, /, **values: Any) -> str:
    """A jinja2 template with its values; a value that it needs and lacks is an error."""
    environment = template_environment()
    environment.filters |= FILTERS
    return environment.get_template(name).render(**values)


@cache
def template_environment() -> Environment:
    """The environment of all templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(template_root()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - CMake, Python, TOML and Markdown, no HTML
    )


_BARE = re.compile(r"[A-Za-z0-9_./:=+-]+")


def argument(text: str) -> str:
    """One CMake argument, quoted when it must be; also one element of a CMake list."""
    if _BARE.fullmatch(text):
        return text
    # CMake reads two backslashes as one, which keeps the text a single element of a list.
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
    # With the bracket behind it, since the text may end in the beginning of one.
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
