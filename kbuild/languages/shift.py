"""Working through units in several threads, each with a token of the run's jobserver."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kbuild.build.budget import Run

T = TypeVar("T")


class Shift(Generic[T]):
    """Jobs, and what does one of them; `perform` raises nothing but what ends all."""

    def __init__(self, jobs: Sequence[T], perform: Callable[[T], None], run: Run) -> None:
        self._jobs = deque(jobs)
        self._perform, self._run = perform, run
        self._count = min(len(jobs), run.budget.jobs)
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    def work(self) -> None:
        """Do all, unless the run ends before.

        The calling thread works with the token that its variant has anyway; others take their own.
        """
        threads = [
            threading.Thread(target=self._with_token, name="unit", daemon=True)
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
            job = self._jobs.popleft()
        except IndexError:
            return False
        self._perform(job)
        return True

    def _is_over(self) -> bool:
        return not self._jobs or self._stopped.is_set() or self._run.is_ending
