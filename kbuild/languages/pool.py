"""Workers: started when they are needed, kept for the next unit, never more than a run allows."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kbuild.languages.conversation import Conversation, WorkerDiedError


@dataclass(frozen=True)
class Kind:
    """What makes one worker as good as another."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


Start = Callable[[Kind, Path], Conversation]
"""Starts a worker, given a folder for its files."""
_HOME = ("HOME", "TMPDIR", "TRITON_HOME")


class Pool:
    """Workers of all kinds. Safe to use from several threads; closed from any of them."""

    def __init__(self, most: int, folder: Path, start: Start | None = None) -> None:
        """Keep workers' files below `folder`, which need not exist."""
        self._most, self._folder = most, folder
        self._start = start or begin
        self._numbers = itertools.count(1)
        self._condition = threading.Condition()
        self._idle: list[tuple[Kind, Conversation]] = []
        self._busy: set[Conversation] = set()
        self._pending = 0
        self._closed = False

    @contextmanager
    def worker(self, kind: Kind, *, fresh: bool = False) -> Iterator[Conversation]:
        """A worker for one thread; one that dies meanwhile is not kept.

        Args:
            kind: which.
            fresh: start one, whichever there are.

        Raises:
            WorkerDiedError: it cannot be started, or the pool is closed.
        """
        worker = self._take(kind, fresh=fresh)
        try:
            yield worker
        finally:
            self._give_back(kind, worker)

    def close(self) -> None:
        """End all workers, busy ones too."""
        with self._condition:
            self._closed = True
            idle, busy = [worker for _, worker in self._idle], [*self._busy]
            self._idle.clear()
            self._condition.notify_all()
        for worker in busy:
            worker.stop()  # whoever uses it closes it
        for worker in idle:
            _end(worker)

    @property
    def is_closed(self) -> bool:
        """True when nothing is started any more."""
        return self._closed

    @property
    def count(self) -> int:
        """Workers that there are."""
        with self._condition:
            return len(self._idle) + len(self._busy) + self._pending

    def _take(self, kind: Kind, *, fresh: bool) -> Conversation:
        with self._condition:
            while True:
                if self._closed:
                    raise WorkerDiedError("is not started: kbuild is stopping", "")
                found = None if fresh else self._of(kind)
                if found is not None:
                    self._busy.add(found)
                    return found
                room = len(self._idle) + len(self._busy) + self._pending < self._most
                if room or self._idle:
                    break
                self._condition.wait()
            if not room:
                _end(self._idle.pop(0)[1])
            self._pending += 1
        return self._begin(kind)

    def _begin(self, kind: Kind) -> Conversation:
        try:
            scratch = self._folder / str(next(self._numbers))
            scratch.mkdir(parents=True)
            worker = self._start(kind, scratch)
        finally:
            with self._condition:
                self._pending -= 1
                self._condition.notify_all()
        with self._condition:
            self._busy.add(worker)
            closed = self._closed
        if closed:
            worker.stop()
        return worker

    def _of(self, kind: Kind) -> Conversation | None:
        """An idle worker of that kind; those that ended meanwhile are forgotten."""
        for pair in list(self._idle):
            if not pair[1].lives:
                self._idle.remove(pair)
                _end(pair[1])
            elif pair[0] == kind:
                self._idle.remove(pair)
                return pair[1]
        return None

    def _give_back(self, kind: Kind, worker: Conversation) -> None:
        with self._condition:
            self._busy.discard(worker)
            keep = worker.lives and not self._closed
            if keep:
                self._idle.append((kind, worker))
            self._condition.notify_all()
        if not keep:
            _end(worker)


def begin(kind: Kind, scratch: Path) -> Conversation:
    """Start a worker whose home is a folder of its own."""
    home = scratch / "home"
    home.mkdir()
    env: Mapping[str, str] = {**dict(kind.env), **dict.fromkeys(_HOME, str(home))}
    return Conversation(kind.argv, {**env, "TRITON_CACHE_DIR": str(home / "cache")}, scratch)


def _end(worker: Conversation) -> None:
    worker.close()
    with suppress(OSError):
        shutil.rmtree(worker.scratch)
