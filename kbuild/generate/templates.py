"""The templates, wherever they are: in a checkout beside the package, in a wheel inside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = Path(__file__).parent.parent


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
    found = (template_root() / folder).glob(pattern)
    return tuple(sorted(f"{folder}/{path.name}" for path in found if path.is_file()))


def render(name: str, /, **values: Any) -> str:
    """A jinja2 template with its values; a value that it needs and lacks is an error."""
    from kbuild.generate import quoting

    # CMake, Python and TOML, no HTML.
    environment = template_environment(autoescape=False)
    environment.filters |= quoting.FILTERS
    return environment.get_template(name).render(**values)


@cache
def template_environment(*, autoescape: bool) -> Environment:
    """Where all templates are read: the same rules for all, escaped for HTML or not."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(template_root()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=autoescape,  # noqa: S701 - what is rendered decides
    )
