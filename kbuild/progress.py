"""How far a long piece of work has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Protocol

Clock = Callable[[], float]
Say = Callable[[str], None]

_SECONDS = 10.0
"""A line at least this often."""
_SHARE = 0.1
"""A line when this share more is done, if the last one is not fresh."""
_FRESH = 2.0
_WIDE = 100
"""Columns of a terminal with room for long names."""
_MINUTE_S = 90.0
"""Time that is left is counted in minutes from here on."""


class Progress(Protocol):
    """Told how far the work has come."""

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        """`done` of `total` units; `label` names the one in hand, `left_s` are expected seconds."""


def left_text(left_s: float | None) -> str:
    """`about 40 s left`, `about 3 min left`; empty when nobody knows."""
    if left_s is None or left_s < 0.1:  # noqa: PLR2004 - nothing worth a word
        return ""
    if left_s < _MINUTE_S:
        return f"about {max(round(left_s), 1)} s left"
    minutes = round(left_s / 60)
    hours = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004
    return f"about {hours} left"


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def report_work_to(listener: Callable[[str], None]) -> Iterator[None]:
    """What `report_current_work` says in this context goes to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_current_work(label: str) -> None:
    """Name the part of a long piece of work that comes next, to whoever listens."""
    listener = _listener.get()
    if listener is not None:
        listener(label)


class DownloadMeter:
    """Says now and then how much of a download has come, and how fast."""

    def __init__(self, what: str, say: Say, clock: Clock = time.monotonic) -> None:
        self._what, self._say, self._clock = what, say, clock
        self._began = self._said = clock()
        self._bytes = 0

    def count(self, size: int) -> None:
        """More bytes have come."""
        self._bytes += size
        now = self._clock()
        if now - self._said >= _SECONDS / 2:
            self._said = now
            self._say(f"{self._what}: {self.text(self._bytes)}")

    def text(self, size: int) -> str:
        """`120.4 MB in 12 s, 10.0 MB/s`."""
        seconds = self._clock() - self._began
        rate = f", {size / seconds / 1e6:.1f} MB/s" if seconds > 0 else ""
        return f"{size / 1e6:.1f} MB in {seconds:.0f} s{rate}"


_meter: ContextVar[DownloadMeter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(meter: DownloadMeter) -> Iterator[None]:
    """What `count_download` counts in this context goes to the meter."""
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)


def download_meter() -> DownloadMeter | None:
    """The meter of this context, for `set_download_meter` in threads that it starts."""
    return _meter.get()


def set_download_meter(meter: DownloadMeter | None) -> None:
    """Count what this thread fetches with the meter of another."""
    _meter.set(meter)


def count_download(size: int) -> None:
    """Bytes have come over the network; for whoever measures."""
    meter = _meter.get()
    if meter is not None:
        meter.count(size)


class NoProgress:
    """Shows nothing."""

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        """See `Progress.update`."""


class LogProgress:
    """Whole lines, seldom enough for a log."""

    def __init__(self, title: str, say: Say, clock: Clock = time.monotonic) -> None:
        self._title = title
        self._say = say
        self._clock = clock
        self._began = self._said = clock()
        self._share = 0.0

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        """See `Progress.update`."""
        now, share = self._clock(), done / total if total else 0.0
        waited = now - self._said
        if waited < _SECONDS and (waited < _FRESH or share < self._share + _SHARE):
            return
        self._said, self._share = now, share
        count = f"{done}/{total}" if total else str(done)
        left = f" ({left_text(left_s)})" if left_text(left_s) else ""
        self._say(f"{self._title}: {count} after {now - self._began:.0f} s, {label}{left}")


@contextmanager
def delayed_progress(
    begin: Callable[[], AbstractContextManager[Progress]], after: float, clock: Clock
) -> Iterator[Progress]:
    """Progress that begins to be shown when the work has taken so many seconds."""
    began = clock()
    with ExitStack() as stack:

        class Late:
            """Hands on, in time."""

            shown: Progress | None = None

            def update(
                self, done: int, total: int, label: str, left_s: float | None = None
            ) -> None:
                """See `Progress.update`."""
                if self.shown is None and clock() - began >= after:
                    self.shown = stack.enter_context(begin())
                if self.shown is not None:
                    self.shown.update(done, total, label, *(() if left_s is None else (left_s,)))

        yield Late()


@contextmanager
def progress_bar(title: str, total: int, *, colored: bool) -> Iterator[Progress]:
    """A bar on stderr that is gone when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    def text(field: str, column: Column) -> TextColumn:
        return TextColumn(field, markup=False, table_column=column)

    # What is written while the bar is there, such as a compiler's output, is not wrapped.
    console = Console(
        stderr=True, no_color=not colored, highlight=False, markup=False, soft_wrap=True
    )
    # Only the label gives way where there is no room, and before it a part of a long title.
    longest = 40 if console.width >= _WIDE else 26
    columns = (
        text("{task.description}", Column(no_wrap=True, max_width=longest, overflow="ellipsis")),
        BarColumn(bar_width=10, table_column=Column(no_wrap=True, min_width=10)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        text("{task.fields[left]}", Column(no_wrap=True)),
        text("{task.fields[label]}", Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Bar(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(title, total=total or None, label="", left="")

        class Live:
            """Hands on to the bar."""

            def update(
                self, done: int, total: int, label: str, left_s: float | None = None
            ) -> None:
                """See `Progress.update`."""
                left = left_text(left_s).removeprefix("about ")
                bar.update(task, completed=done, total=total or None, label=label, left=left)

        yield Live()
