"""Runs tasks and units in threads, each with a token of the run's jobserver, until time is over.

A task is a variant's build, which starts compilers of its own. A unit is compiled by itself.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import PurePath
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Generic, TypeVar

from kbuild.system.budget import Run
from kbuild.system.progress import ESTIMATED_FROM, Clock, Progress

T = TypeVar("T")
_POLL = 0.2
_PREPARED_AHEAD = 2
"""Variants that are prepared while others have all tokens."""
_MOST_UNKNOWN = 1 / 3
"""Share of the remaining time that may be of kinds of units of which none has ended."""
_PREPARATIONS = BoundedSemaphore(2)
"""Number of variants that are prepared at a time."""


@dataclass(frozen=True)
class VariantTask(Generic[T]):
    """One variant's build."""

    name: str
    work: Callable[[], T]
    prepare: Callable[[], object] = lambda: None
    """Work before the build that needs no processor, such as fetching: it takes no token."""


def run_tasks(
    tasks: Sequence[VariantTask[T]], run: Run, interrupt: Callable[[], None], more: int = 0
) -> list[T | None]:
    """Results in the order of the tasks; None for one that time did not allow to start.

    An exception of a task, or Ctrl-C, ends the others: `interrupt` is to end their processes.
    `more` tasks than usual are under way at a time: those that wait for other machines.
    """
    if not tasks:
        return []
    # Without a jobserver, a variant in excess of `jobs` would compile at once.
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
                    # Without tokens, the builds under way start no more units.
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


class LocalExecutor(Generic[T]):
    """Performs units on this machine: one thread for each token of the run's jobserver.

    `perform` waits for memory itself, and raises nothing but what ends all.
    """

    def __init__(self, run: Run, perform: Callable[[T], None], units: Sequence[T]) -> None:
        self._run, self._perform, self._waiting = run, perform, deque(units)
        self._count = min(len(units), run.budget.jobs)
        self._stopped = Event()
        self._failure: BaseException | None = None

    def execute(self) -> None:
        """Perform the units; some are left when the run ends before.

        The calling thread works with the token that its variant has anyway; others take their own.
        """
        threads = [
            Thread(target=self._with_token, name="unit", daemon=True)
            # The calling thread is the first worker.
            for _ in range(1, self._count)
        ]
        for thread in threads:
            thread.start()
        try:
            while self._do_next():
                pass
        except BaseException:
            self._stopped.set()  # nobody waits for what others are at: it may never come
            raise
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _with_token(self) -> None:
        server = self._run.server
        while not self._is_over():
            if server is not None and not server.acquire(self._is_over):
                return
            try:
                if not self._do_next():
                    return
            except BaseException as failure:  # noqa: BLE001 - raised in the calling thread
                self._failure = failure
                self._stopped.set()
                return
            finally:
                if server is not None:
                    server.release()

    def _do_next(self) -> bool:
        if self._stopped.is_set() or self._run.is_ending:
            return False
        try:
            unit = self._waiting.popleft()
        except IndexError:
            return False
        self._perform(unit)
        return True

    def _is_over(self) -> bool:
        return not self._waiting or self._stopped.is_set() or self._run.is_ending


IMAGES = "images of "
"""Beginning of the name of a unit that stands for the images of a kernel for one target, and of the
labels of these images: `images of KERNEL: LABEL`."""


def _is_of(unit: str, kernel: str) -> bool:
    """True for a unit that stands for images of a kernel, written `images of KERNEL`."""
    return kernel.startswith(IMAGES) and unit.startswith(f"{kernel} for ")


def _kind(unit: str) -> str:
    """The kind of a unit: units of one kind advance at one speed."""
    return IMAGES if unit.startswith(IMAGES) else PurePath(unit).suffix


class CombinedProgress:
    """One display for the progress of several builds, whose total does not change."""

    def __init__(
        self,
        progress: Progress,
        expected: Mapping[str, Mapping[str, float]],
        clock: Clock = time.monotonic,
        *,
        is_guessed: bool = True,
    ) -> None:
        """Expect units of builds.

        Args:
            progress: shows it.
            expected: build -> unit -> how long it takes, in any unit of time.
            clock: seconds.
            is_guessed: False if the durations of units of different kinds can be compared.
        """
        self._progress, self._clock, self._began = progress, clock, clock()
        self._lock = Lock()
        self._expected, self._is_guessed = expected, is_guessed
        self._counts = {name: (0, len(units)) for name, units in expected.items()}
        self._left = {name: dict(units) for name, units in expected.items()}
        self._duration = sum(sum(units.values()) for units in expected.values())
        self._advanced_at: dict[str, float] = {}
        """Builds that run -> when a unit of theirs ended last."""
        self._past: defaultdict[str, float] = defaultdict(float)
        """Kind -> expected duration of what is done."""
        self._busy_s: defaultdict[str, float] = defaultdict(float)
        """Kind -> seconds of all builds until units of the kind ended."""

    def part(self, name: str) -> Callable[[int, int, str], None]:
        """Display of one build's progress, phase after phase."""
        last, base = (0, 0), 0
        self._advanced_at[name] = self._clock()

        def update(done: int, total: int, label: str) -> None:
            nonlocal last, base
            with self._lock:
                before, size = self._counts[name]
                if total != last[1] or done < last[0]:
                    base = before  # another phase: images of each kernel, then objects
                kernel, _, rest = label.partition(": ")
                units = [unit for unit in self._expected[name] if _is_of(unit, kernel)]
                share = done / total if total else 0.0
                self._advance(name, units or [label], share if units else 1.0)
                label = rest if units else label
                last, room = (done, total), min(len(units) or size, size - base)
                # The total is fixed: a phase of more steps than expected takes smaller ones.
                ahead = done if total <= room else done * room // total
                self._counts[name] = (max(before, base + ahead), size)
                self._show(label if len(self._counts) == 1 else f"{name}: {label}")

        return update

    def _advance(self, name: str, units: Sequence[str], share: float) -> None:
        """Take off what is done: a share of each of some units."""
        left, now = self._left[name], self._clock()
        for unit in units:
            if unit in left:
                rest = min(left[unit], self._expected[name][unit] * (1 - share))
                self._past[_kind(unit)] += left[unit] - rest
                left[unit] = rest
        self._busy_s[_kind(units[0])] += now - self._advanced_at.get(name, now)
        self._advanced_at[name] = now

    def finish(self, name: str) -> None:
        """A build has ended, also without telling of all its units."""
        with self._lock:
            if name in self._advanced_at:
                self._advance(name, [f"{name}.so"], 1.0)
            self._advanced_at.pop(name, None)
            self._counts[name] = (len(self._expected[name]),) * 2
            self._left[name].clear()
            self._show(name)

    def _show(self, label: str) -> None:
        done, total = (sum(column) for column in zip(*self._counts.values(), strict=True))
        self._progress.update(done, total, label, self._left_s())

    def _left_s(self) -> float | None:
        """Seconds that the rest takes at the speed until now; None while that says little."""
        now = self._clock()
        done, total = (sum(column) for column in zip(*self._counts.values(), strict=True))
        past, busy_s = sum(self._past.values()), sum(self._busy_s.values())
        # A build may end without telling of its units: they are done, at no known speed.
        rest = sum(sum(units.values()) for units in self._left.values())
        ended = self._duration - rest
        early = ended < self._duration * ESTIMATED_FROM or done < total * ESTIMATED_FROM
        if not past or not busy_s or early:
            return None
        overall, unknown = busy_s / past, 0.0
        seconds: dict[str, list[float]] = {}
        for name, units in self._left.items():
            seconds[name] = []
            for unit, size in units.items():
                kind = _kind(unit)
                is_known = self._past[kind] and self._is_guessed
                each = size * (self._busy_s[kind] / self._past[kind] if is_known else overall)
                unknown += 0.0 if is_known or not self._is_guessed else each
                seconds[name].append(each)
        # The last units of a build are long, and nobody says how far they are: a build has worked
        # on one of them since its last one ended.
        hidden = {
            name: min(now - since, max(seconds[name], default=0.0))
            for name, since in self._advanced_at.items()
        }
        rest_s = {name: sum(units) - hidden.get(name, 0.0) for name, units in seconds.items()}
        if unknown > sum(rest_s.values()) * _MOST_UNKNOWN:
            return None
        # Builds share the processors: so many seconds of builds passed in one.
        running_s = sum(now - since for since in self._advanced_at.values())
        at_once = max((busy_s + running_s) / max(now - self._began, 1e-9), 1.0)
        left_s = max(sum(rest_s.values()) / at_once, max(rest_s.values(), default=0.0))
        # How far the last units are is a guess of up to one of them.
        longest = max((each for units in seconds.values() for each in units), default=0.0)
        return None if left_s < longest else left_s
