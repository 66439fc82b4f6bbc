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


class Progress(Protocol):
    """Told how far the work has come."""

    def update(self, done: int, total: int, label: str) -> None:
        """`done` of `total` units; `label` names the one in hand."""


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


class NoProgress:
    """Shows nothing."""

    def update(self, done: int, total: int, label: str) -> None:
        """See `Progress.update`."""


class LogProgress:
    """Whole lines, seldom enough for a log."""

    def __init__(self, title: str, say: Say, clock: Clock = time.monotonic) -> None:
        self._title = title
        self._say = say
        self._clock = clock
        self._began = self._said = clock()
        self._share = 0.0

    def update(self, done: int, total: int, label: str) -> None:
        """See `Progress.update`."""
        now, share = self._clock(), done / total if total else 0.0
        waited = now - self._said
        if waited < _SECONDS and (waited < _FRESH or share < self._share + _SHARE):
            return
        self._said, self._share = now, share
        count = f"{done}/{total}" if total else str(done)
        self._say(f"{self._title}: {count} after {now - self._began:.0f} s, {label}")


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

            def update(self, done: int, total: int, label: str) -> None:
                """See `Progress.update`."""
                if self.shown is None and clock() - began >= after:
                    self.shown = stack.enter_context(begin())
                if self.shown is not None:
                    self.shown.update(done, total, label)

        yield Late()


@contextmanager
def progress_bar(title: str, total: int, *, colored: bool) -> Iterator[Progress]:
    """A bar on stderr that is gone when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[label]}", markup=False),
    )
    console = Console(stderr=True, no_color=not colored, highlight=False, markup=False)
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total or None, label="")

        class Live:
            """Hands on to the bar."""

            def update(self, done: int, total: int, label: str) -> None:
                """See `Progress.update`."""
                bar.update(task, completed=done, total=total or None, label=label)

        yield Live()
