"""Progress of long work: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from threading import Lock, RLock
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import rich.progress

Clock = Callable[[], float]
Say = Callable[[str], None]

_SECONDS = 10.0
"""Seconds after which a line is printed at the latest."""
_SHARE = 0.1
"""Share of progress after which a line is printed, if the last one is not fresh."""
_FRESH = 2.0
_WIDE = 100
"""Columns of a terminal with room for long names."""
ESTIMATED_FROM = 1 / 3
"""Share of the work after which the rest is estimated: earlier, a first build misleads by far."""
_MINUTE_S = 90.0
"""Seconds above which remaining time is shown in minutes."""


class Progress(Protocol):
    """Receiver of a work's progress."""

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
    """Send the texts of `report_current_work` in this context to `listener`."""
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


class NoProgress:
    """Shows nothing."""

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        """See `Progress.update`."""


class Downloads:
    """The downloads of one command, shown as one line of progress.

    `show` opens the line when something is fetched, and `detail` takes what each download was.
    """

    def __init__(
        self,
        show: Callable[[], AbstractContextManager[Progress]] | None = None,
        detail: Say = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._show, self._detail, self._clock = (
            show or (lambda: nullcontext(NoProgress())),
            detail,
            clock,
        )
        self._lock = Lock()
        self._running: list[str] = []
        self._line = ExitStack()
        self._progress: Progress = NoProgress()
        self._bytes = 0

    @contextmanager
    def fetching(self, what: str) -> Iterator[None]:
        """Count what `count_download` counts in this context."""
        began, before = self._clock(), self._bytes
        with self._lock:
            if not self._running:
                self._progress = self._line.enter_context(self._show())
            self._running.append(what)
            self._update()
        token = _downloads.set(self)
        try:
            yield
        finally:
            _downloads.reset(token)
            with self._lock:
                self._running.remove(what)
                if not self._running:
                    self._line.close()
        seconds, size = self._clock() - began, (self._bytes - before) / 1e6
        rate = f", {size / seconds:.1f} MB/s" if seconds > 0 else ""
        self._detail(f"fetched {what}: {size:.1f} MB in {seconds:.0f} s{rate}")

    def count(self, size: int) -> None:
        """Count more bytes."""
        with self._lock:
            self._bytes += size
            if self._running:
                self._update()

    def _update(self) -> None:
        more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
        self._progress.update(0, 0, f"{self._running[0]}{more}, {self._bytes / 1e6:.0f} MB")


_downloads: ContextVar[Downloads | None] = ContextVar("downloads", default=None)


def current_downloads() -> Downloads | None:
    """The counter of downloads in this context, to pass to `set_downloads` in new threads."""
    return _downloads.get()


def set_downloads(downloads: Downloads | None) -> None:
    """Count this thread's downloads together with another thread's."""
    _downloads.set(downloads)


def count_download(size: int) -> None:
    """Count bytes that came over the network."""
    downloads = _downloads.get()
    if downloads is not None:
        downloads.count(size)


class LogProgress:
    """Progress as lines, rare enough for a log."""

    def __init__(self, title: str, say: Say, clock: Clock = time.monotonic) -> None:
        self._title = title
        self._say = say
        self._clock = clock
        self._began = self._shown_at = clock()
        self._share = 0.0

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        """See `Progress.update`."""
        now, share = self._clock(), done / total if total else 0.0
        waited = now - self._shown_at
        if waited < _SECONDS and (waited < _FRESH or share < self._share + _SHARE):
            return
        self._shown_at, self._share = now, share
        left = f" ({left_text(left_s)})" if left_text(left_s) else ""
        after = f"after {now - self._began:.0f} s"
        count = _count_text(done, total)
        what = f"{count} {after}, {label}" if count else f"{label} {after}"
        self._say(f"{self._title}: {what}{left}")


def _count_text(done: int, total: int) -> str:
    """`3/12`, or `3` when nobody knows how many there are; empty before the first of these."""
    return f"{done}/{total}" if total else str(done or "")


@contextmanager
def delayed_progress(
    begin: Callable[[], AbstractContextManager[Progress]], after: float, clock: Clock
) -> Iterator[Progress]:
    """Progress that is shown once the work has taken so many seconds."""
    began = clock()
    with ExitStack() as stack:

        class Late:
            """Passes progress on, once it is due."""

            shown: Progress | None = None

            def update(
                self, done: int, total: int, label: str, left_s: float | None = None
            ) -> None:
                """See `Progress.update`."""
                if self.shown is None and clock() - began >= after:
                    self.shown = stack.enter_context(begin())
                if self.shown is not None:
                    self.shown.update(done, total, label, left_s)

        yield Late()


class ProgressBars:
    """Bars on stderr, one below the other; each disappears when its work is done."""

    def __init__(self, *, colored: bool) -> None:
        self._colored = colored
        self._lock = RLock()
        self._bars = 0

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Progress]:
        """Show one more bar."""
        with self._lock:
            if not self._bars:
                self._display = _open_display(colored=self._colored)
            self._bars += 1
            count = _count_text(0, total)
            task = self._display.add_task(
                title, total=total or None, label="", left="", count=count
            )
        display = self._display

        class Live:
            """Passes progress on to the bar."""

            def update(
                self, done: int, total: int, label: str, left_s: float | None = None
            ) -> None:
                """See `Progress.update`."""
                left = left_text(left_s).removeprefix("about ")
                count = _count_text(done, total)
                display.update(
                    task, completed=done, total=total or None, label=label, left=left, count=count
                )

        try:
            yield Live()
        finally:
            with self._lock:
                display.remove_task(task)
                self._bars -= 1
                if not self._bars:
                    display.stop()


def _open_display(*, colored: bool) -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display
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
        text("{task.fields[count]}", Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        text("{task.fields[left]}", Column(no_wrap=True)),
        text("{task.fields[label]}", Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    display = Display(*columns, console=console, transient=True, expand=True)
    display.start()
    return display
