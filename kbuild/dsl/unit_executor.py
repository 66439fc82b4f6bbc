"""Units of work, and their executor on this machine; a plug-in may run them on others.

A unit is a value. Its key covers everything that its outputs follow from, so that it may run
anywhere, and more than once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kbuild.system.budget import Run


@dataclass(frozen=True)
class UnitResources:
    """Resources that a unit takes while it runs."""

    processors: int = 1
    memory: int = 0
    """MiB; 0 when nothing is known."""
    device: str = ""
    """Model of the GPU that it needs; empty when it needs none."""


@dataclass(frozen=True)
class WorkUnit:
    """The smallest thing that is compiled or checked by itself."""

    key: str
    """Digest of everything that determines the outputs; a cache stores them under it."""
    label: str
    """Text for users."""
    job: str = ""
    """Digest that units of the same project, plan and toolchain share."""
    seconds: float = 0.0
    """Expected duration; 0 if unknown."""
    resources: UnitResources = UnitResources()


@dataclass(frozen=True)
class UnitResult:
    """Outputs or failure of a unit."""

    unit: WorkUnit
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    """Output by name; those that the executor keeps itself are left out."""
    worker: str = ""
    """Name of the worker that ran it; empty on this machine."""
    seconds: float = 0.0
    failure: str = ""
    """Reason why there are no outputs."""


ResultCallback = Callable[[UnitResult], None]


class LocalExecutor:
    """Runs units on this machine: one thread for each token of the run's jobserver.

    `perform` waits for memory itself, and raises nothing but what ends all.
    """

    def __init__(
        self,
        run: Run,
        perform: Callable[[WorkUnit], UnitResult],
        units: Sequence[WorkUnit],
        deliver: ResultCallback,
    ) -> None:
        self._waiting = deque(units)
        self._run, self._perform, self._deliver = run, perform, deliver
        self._count = min(len(units), run.budget.jobs)
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    def execute(self) -> None:
        """Run the units, and deliver each result in the thread that ran it.

        The calling thread works with the token that its variant has anyway; others take their own.
        Units are left when the run ends before.
        """
        threads = [
            threading.Thread(target=self._with_token, name="unit", daemon=True)
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
        self._deliver(self._perform(unit))
        return True

    def _is_over(self) -> bool:
        return not self._waiting or self._stopped.is_set() or self._run.is_ending
