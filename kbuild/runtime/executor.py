"""Runs tasks in threads, each with a token of the run's jobserver, until the time budget ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import BoundedSemaphore, Lock
from typing import Generic, TypeVar

from kbuild.progress import Progress
from kbuild.runtime.budget import Run

T = TypeVar("T")
_POLL = 0.2
_PREPARED_AHEAD = 2
"""Variants that are prepared while others have all tokens."""
_PREPARATIONS = BoundedSemaphore(2)
"""How many are prepared at a time."""


@dataclass(frozen=True)
class VariantTask(Generic[T]):
    """One variant's build."""

    name: str
    work: Callable[[], T]
    prepare: Callable[[], object] = lambda: None
    """What comes before and is no work for processors, such as fetching: it takes no token."""


def run_tasks(
    tasks: Sequence[VariantTask[T]], run: Run, interrupt: Callable[[], None], more: int = 0
) -> list[T | None]:
    """Results in the order of the tasks; None for one that time did not allow to start.

    An exception of a task, or Ctrl-C, ends the others: `interrupt` is to end their processes.
    `more` tasks than usual are under way at a time: those that wait for other machines.
    """
    if not tasks:
        return []
    ahead = _PREPARED_AHEAD if run.server is not None else 0
    workers = min(len(tasks), run.budget.jobs + ahead + more)
    with ThreadPoolExecutor(workers, thread_name_prefix="variant") as pool:
        futures = [pool.submit(_perform, task, run) for task in tasks]
        try:
            # Wait for all, or for the first exception; withhold tokens as soon as time is over.
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=_POLL, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if run.budget.is_over and run.server is not None:
                    run.server.drain()
        except BaseException:
            run.stopped.set()
            interrupt()
            raise
    return [future.result() for future in futures]


def _perform(task: VariantTask[T], run: Run) -> T | None:
    """Prepare, then do the work while holding the token that is its ninja's own."""
    if run.is_ending:
        return None
    with _PREPARATIONS:  # what is unpacked takes memory
        task.prepare()
    if run.server is None:
        return _unless_ending(task, run)
    if not run.server.acquire(lambda: run.is_ending):
        return None
    try:
        return task.work()
    finally:
        run.server.release()


def _unless_ending(task: VariantTask[T], run: Run) -> T | None:
    return None if run.is_ending else task.work()


class CombinedProgress:
    """One display for the progress of several builds."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = Lock()
        self._counts: dict[str, tuple[int, int]] = {}

    def part(self, name: str) -> Callable[[int, int, str], None]:
        """Where one build tells of its progress."""

        def update(done: int, total: int, label: str) -> None:
            with self._lock:
                self._counts[name] = (done, total)
                counts = self._counts.values()
                all_done, all_total = (sum(column) for column in zip(*counts, strict=True))
                shown = label if len(self._counts) == 1 else f"{name}: {label}"
                self._progress.update(all_done, all_total, shown)

        return update
