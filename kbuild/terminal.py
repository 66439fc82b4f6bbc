"""What one output stream can show: colour, animation, fold groups.

Everything kbuild prints makes sense without colour; colour only repeats what the words say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

Color = Literal["auto", "always", "never"]
Paint = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "1;31",
    "green": "32",
    "yellow": "1;33",
    "cyan": "36",
}


class Stream(Protocol):
    """The part of a text stream that is used."""

    def write(self, text: str, /) -> object:
        """Write text."""
        ...

    def flush(self) -> object:
        """Hand over what was written."""
        ...

    def isatty(self) -> bool:
        """True for a terminal."""
        ...


def shows_color(stream: Stream, color: Color, environ: Mapping[str, str]) -> bool:
    """Whether to colour: the option first, then `NO_COLOR`, `FORCE_COLOR`, then the terminal."""
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def animates(stream: Stream, environ: Mapping[str, str]) -> bool:
    """Whether a line may be redrawn: on a terminal that can, outside CI."""
    return stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")


def folds(environ: Mapping[str, str]) -> bool:
    """Whether the log understands the fold groups of GitHub Actions."""
    return bool(environ.get("CI")) and bool(environ.get("GITHUB_ACTIONS"))


def paint(text: str, style: Paint, *, on: bool) -> str:
    """The text in a style when colour is on."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if on and text else text
