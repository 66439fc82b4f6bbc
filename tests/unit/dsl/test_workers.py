"""The end of a pool, while workers start and work."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from kbuild.dsl.workers import WorkerDiedError, WorkerKind, WorkerPool, WorkerProcess, start_worker

KIND = WorkerKind((sys.executable, "-c", "import time; time.sleep(600)"), ())


class Slow:
    """Starts workers when it is told to."""

    def __init__(self) -> None:
        self.called, self.go = threading.Event(), threading.Event()
        self.made: list[WorkerProcess] = []

    def __call__(self, kind: WorkerKind, scratch: Path) -> WorkerProcess:
        self.called.set()
        self.go.wait(20)
        self.made.append(start_worker(kind, scratch))
        return self.made[-1]


def use(pool: WorkerPool, took: threading.Event, patience: float = 30.0) -> threading.Thread:
    """A thread that asks a worker, and is told nothing."""

    def work() -> None:
        try:
            with pool.worker(KIND) as worker:
                took.set()
                worker.ask({}, patience)
        except WorkerDiedError:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_worker_that_is_about_to_start(tmp_path):
    """It is started and ended; whoever closes waits for that."""
    start = Slow()
    pool = WorkerPool(2, tmp_path, start)
    thread = use(pool, threading.Event())
    assert start.called.wait(20)
    threading.Timer(0.3, start.go.set).start()
    pool.close()
    assert [worker.lives for worker in start.made] == [False]
    assert pool.count == 0
    assert list(tmp_path.iterdir()) == []
    thread.join()


@pytest.mark.parametrize("count", [1, 3])
def test_workers_at_work(tmp_path, count):
    """They and their folders are gone when `close` returns, from several threads as well."""
    start = Slow()
    start.go.set()
    pool = WorkerPool(count, tmp_path, start)
    tooks = [threading.Event() for _ in range(count)]
    threads = [use(pool, took) for took in tooks]
    assert all(took.wait(20) for took in tooks)
    closers = [threading.Thread(target=pool.close) for _ in range(2)]
    for thread in closers:
        thread.start()
    for thread in closers:
        thread.join()
    assert not any(worker.lives for worker in start.made)
    assert list(tmp_path.iterdir()) == []
    for thread in threads:
        thread.join()
