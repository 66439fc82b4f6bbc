"""Output to the user: data on stdout, messages on stderr.

Colour, animation and fold groups where the stream can show them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Literal, Protocol

from kbuild.system.errors import ConfigError, KbuildError, Problem, in_groups
from kbuild.system.os_errors import STDOUT, errors_about
from kbuild.system.progress import (
    Clock,
    Downloads,
    LogProgress,
    NoProgress,
    Progress,
    ProgressBars,
    delayed_progress,
)

Color = Literal["auto", "always", "never"]
Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

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

    def flush(self) -> object:
        """Hand over what was written."""

    def isatty(self) -> bool:
        """True for a terminal."""


def uses_color(stream: Stream, color: Color, environ: Mapping[str, str]) -> bool:
    """True for colour: by the option, then `NO_COLOR`, then `FORCE_COLOR`, then the terminal."""
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def can_animate(stream: Stream, environ: Mapping[str, str]) -> bool:
    """True if a line may be redrawn: on a terminal that supports it, outside CI."""
    return stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")


def paint(text: str, style: Style, *, on: bool) -> str:
    """The text in a style when colour is on."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if on and text else text


__all__ = ["Color", "Progress", "Ui"]

_HINT = "  hint:"
_FETCHING = "fetching"


class Ui:
    """Prints messages and data, with the verbosity and colours of the options.

    `verbosity` counts `-v` up and `-q` down: from -1 on only warnings and errors are said, from -2
    on only errors. Data is always printed.
    """

    def __init__(
        self,
        *,
        color: Color = "auto",
        verbosity: int = 0,
        out: Stream | None = None,
        err: Stream | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Clock = time.monotonic,
    ) -> None:
        self.verbosity = verbosity
        self._streams = (out, err)
        self._environ = environ
        self._clock = clock
        self._color_out = uses_color(self._out, color, environ)
        self._color_err = uses_color(self._err, color, environ)
        self._bars = ProgressBars(colored=self._color_err)
        self._printed = set[str]()
        self.downloads = Downloads(self._download_line, self.detail, clock)

    # Looked up each time: a live bar puts its own streams in place of Python's.
    @property
    def _out(self) -> Stream:
        return self._streams[0] or sys.stdout

    @property
    def _err(self) -> Stream:
        return self._streams[1] or sys.stderr

    def say(self, text: str) -> None:
        """Print something worth knowing."""
        if self.verbosity >= 0:
            self._talk(text)

    def say_once(self, text: str) -> None:
        """Print something that several parts of a command would print, once."""
        if text not in self._printed:
            self._printed.add(text)
            self.say(text)

    def detail(self, text: str) -> None:
        """Print a message with `-v` only."""
        if self.verbosity > 0:
            self._talk(self._paint(text, "dim"))

    def warn(self, what: str | Problem) -> None:
        """Print something that the user should act on, though the command goes on."""
        if self.verbosity >= -1:
            text = str(what) if isinstance(what, Problem) else f"warning: {what}"
            self._talk(self._decorated(text))

    def warn_all(self, problems: Iterable[Problem]) -> None:
        """Print warnings, repeated ones as one; `-v` prints each."""
        messages = list(map(str, problems)) if self.verbosity > 0 else in_groups(problems)
        if messages and self.verbosity >= -1:
            self._talk(self._decorated("\n".join(messages)))

    def error(self, error: KbuildError) -> None:
        """Print why the command, or a part of it, failed."""
        if isinstance(error, ConfigError):
            messages = [str(error)] if self.verbosity > 0 else in_groups(error.problems)
            self._talk(self._decorated("\n".join(messages)))
            self._talk(f"{self._paint('error:', 'red')} {error.message}")
        else:
            self._talk(self._decorated(f"error: {error}"))

    def clear(self) -> None:
        """Clear the screen, if messages go to a terminal."""
        if can_animate(self._err, self._environ):
            self._err.write("\x1b[2J\x1b[3J\x1b[H")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A part of the work, printed with its time at the end; a fold group in CI."""
        began = self._clock()
        # The logs of GitHub Actions fold such groups.
        in_actions = self._environ.get("CI") and self._environ.get("GITHUB_ACTIONS")
        grouped = in_actions and self.verbosity >= 0
        if grouped:
            self._talk(f"::group::{title}")
        try:
            yield
        except BaseException:
            self.say(self._paint(f"{title}: failed after {self._clock() - began:.1f} s", "red"))
            raise
        else:
            self.say(f"{title} {self._paint(f'({self._clock() - began:.1f} s)', 'dim')}")
        finally:
            if grouped:
                self._talk("::endgroup::")

    @contextmanager
    def progress(self, title: str, total: int, *, after: float = 0.0) -> Iterator[Progress]:
        """Units of work being done; `total` is 0 as long as nobody knows.

        A bar is shown when the work has taken `after` seconds.
        """
        if self.verbosity < 0:
            yield NoProgress()
        elif can_animate(self._err, self._environ):
            begin = partial(self._bars.bar, title, total)
            with delayed_progress(begin, after, self._clock) if after else begin() as bar:
                yield bar
        else:
            yield LogProgress(title, self.say, self._clock)

    @contextmanager
    def _download_line(self) -> Iterator[Progress]:
        """Show a bar during downloads; in a log, a line now and then."""
        if can_animate(self._err, self._environ):
            with self.progress(_FETCHING, 0) as bar:
                yield bar
        else:
            yield self._download_log

    @cached_property
    def _download_log(self) -> Progress:
        return LogProgress(_FETCHING, self.say, self._clock)

    def data(self, text: str) -> None:
        """Print the result of a command; nothing for an empty text."""
        if text:
            with errors_about(STDOUT):
                self._out.write(text if text.endswith("\n") else f"{text}\n")

    def flush(self) -> None:
        """Flush the data: a closed pipe or a full disk is reported here, not at exit."""
        with errors_about(STDOUT):
            self._out.flush()

    def data_json(self, value: Any) -> None:
        """Print the result of a command as JSON."""
        self.data(json.dumps(value, indent=2, ensure_ascii=False))

    def table(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[str]],
        styles: Mapping[str, Style] = MappingProxyType({}),
    ) -> None:
        """Print the result of a command in aligned columns; `styles` is by the text of a cell.

        On a terminal, cells are folded where the columns are wider than it.
        """
        widths = _column_widths([headers, *rows], self.width)
        chosen = styles if self._color_out else {}
        heads = [_aligned(line, widths, {}) for line in _folded(headers, widths)]
        lines = [_aligned(line, widths, chosen) for row in rows for line in _folded(row, widths)]
        self.data("\n".join([*(self.painted(head, "bold") for head in heads), *lines]))

    def painted(self, text: str, style: Style) -> str:
        """The text as it should look among data."""
        return paint(text, style, on=self._color_out)

    @property
    def width(self) -> int | None:
        """Columns of the terminal that data goes to; None for a pipe or a file."""
        if not self._out.isatty():
            return None
        return shutil.get_terminal_size().columns

    def _paint(self, text: str, style: Style) -> str:
        return paint(text, style, on=self._color_err)

    def _decorated(self, text: str) -> str:
        return "\n".join(self._decorated_line(line) for line in text.split("\n"))

    def _decorated_line(self, line: str) -> str:
        if line.startswith(_HINT):
            return self._paint(_HINT, "cyan") + line[len(_HINT) :]
        if line.startswith("error:"):
            return self._paint("error:", "red") + line[len("error:") :]
        return line.replace("warning:", self._paint("warning:", "yellow"), 1)

    def _talk(self, text: str) -> None:
        self._err.write(f"{text}\n")
        self._err.flush()


class RecordingUi(Ui):
    """Records its output besides printing it."""

    def __init__(self, *, color: Color = "auto", verbosity: int = 0) -> None:
        super().__init__(color=color, verbosity=verbosity)
        self.printed: list[tuple[str, str]] = []
        """Output in order: `out` or `err`, and the text."""

    def data(self, text: str) -> None:
        """See `Ui.data`."""
        whole = text if text.endswith("\n") or not text else f"{text}\n"
        self.printed.append(("out", whole))
        super().data(whole)

    def _talk(self, text: str) -> None:
        self.printed.append(("err", f"{text}\n"))
        super()._talk(text)


_GAP = "  "
_WIDE, _NARROW = 48, 12
"""Words of more characters than the first are split to make room; shorter ones only where nothing
else gives way, and none into parts below the second."""


def _column_widths(rows: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """The width of each column; the widest ones give way where there is no room for all."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if room is None:
        return widths
    longest = [max(map(len, " ".join(column).split()), default=0) for column in columns]
    room -= len(_GAP) * (len(widths) - 1)
    for floors in ([min(word, _WIDE) for word in longest], [_NARROW] * len(longest)):
        while sum(widths) > room:
            flexible = [at for at, width in enumerate(widths) if width > floors[at]]
            if not flexible:
                break
            widest = max(flexible, key=widths.__getitem__)
            widths[widest] = max(widths[widest] - (sum(widths) - room), floors[widest])
    return widths


def _folded(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    cells = [
        textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    return zip_longest(*cells, fillvalue="")


def _aligned(row: Sequence[str], widths: Sequence[int], styles: Mapping[str, Style]) -> str:
    last = len(row) - 1
    cells = (
        (paint(cell, styles[cell], on=True) if cell in styles else cell)
        + ("" if at == last else " " * (width - len(cell)))
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return _GAP.join(cells).rstrip()
