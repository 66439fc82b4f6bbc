"""Worker processes: each answers one JSON request at a time and is reused from a pool."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ShouldCompile = Callable[[str], bool]
_MAX_OUTPUT = 4000
"""Characters of a worker's stderr that are kept for messages."""
_EXIT_SECONDS = 5
"""Seconds to wait for the exit of a worker that closed its output."""
_READ_SIZE = 1 << 16
_PEAK = re.compile(r"^VmHWM:\s+(?P<kib>\d+)", re.MULTILINE)


class WorkerDiedError(Exception):
    """The worker gave no answer; `output` is the end of its stderr."""

    def __init__(self, how: str, output: str) -> None:
        super().__init__(how)
        self.how, self.output = how, output


class WorkerProcess:
    """A worker process that answers requests.

    It leads a process group of its own, which ends when this process does, because the worker
    watches a pipe that this process holds open; see `worker/__main__.py`.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], scratch: Path) -> None:
        """Start it in the existing folder `scratch`, with the environment variables `env` only.

        The descriptor of the pipe that the worker watches is added as the last argument.
        """
        self.scratch = scratch
        self._stderr = scratch / "stderr"
        self._stopping = threading.Lock()
        ours, self._life = os.pipe()
        try:
            with self._stderr.open("wb") as stream:
                self._process = subprocess.Popen(  # noqa: TID251 - this is the door
                    (*argv, str(ours)),
                    env=dict(env),
                    cwd=scratch,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stream,
                    # `select` sees the pipe alone, and not what a buffer has read already.
                    bufsize=0,
                    pass_fds=(ours,),
                    # A process group of its own, so that `stop` also ends what the worker started.
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._life)
            raise WorkerDiedError(f"`{argv[0]}` cannot be started: {error.strerror}", "") from None
        finally:
            # This process keeps the other end alone: when it is gone, the worker reads the end of
            # file.
            os.close(ours)
        self._asked = 0

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    @property
    def peak(self) -> int:
        """Peak of physical memory in MiB; 0 when the process has ended."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        match = _PEAK.search(status)
        return int(match["kib"]) // 1024 if match else 0

    @property
    def cpu(self) -> tuple[float, float]:
        """CPU seconds of the process and its ended children: user, system."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return 0.0, 0.0
        # The name in the second field may contain spaces and parentheses.
        fields = status.rpartition(")")[2].split()
        # The first two fields are cut off, and `utime` is the 14th field, so its index is 11.
        user, system, user_of_children, system_of_children = map(int, fields[11:15])
        ticks = os.sysconf("SC_CLK_TCK")
        return (user + user_of_children) / ticks, (system + system_of_children) / ticks

    def ask(
        self, request: Mapping[str, Any], patience: float, makes: ShouldCompile = lambda _: True
    ) -> Mapping[str, Any]:
        """Send a request and return the answer, see `worker.protocol`.

        The worker may ask whether to compile the kernel with a digest; `makes` decides.

        Raises:
            WorkerDiedError: it ended, sent no valid answer, or took longer than `patience`
                seconds, after which it is killed.
        """
        self._asked += 1
        # What earlier requests printed is not the reason if this one fails.
        stderr_size = self._stderr.stat().st_size
        line = json.dumps({**request, "id": self._asked}).encode() + b"\n"
        try:
            self._send(line)
            deadline = time.monotonic() + patience
            answer = self._receive(deadline, patience)
            # The worker asks about each kernel before it generates code, all within one deadline.
            while "kernel" in answer:
                line = json.dumps({"id": self._asked, "make": makes(answer["kernel"])}).encode()
                self._send(line + b"\n")
                answer = self._receive(deadline, patience)
        except _NoAnswerError as silence:
            if not str(silence):  # it is ending, and may still print the reason
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_EXIT_SECONDS)
            self.stop()
            how = str(silence) or self._ending()
            raise WorkerDiedError(how, self._read_stderr(stderr_size)) from None
        return answer

    def stop(self) -> None:
        """Kill it and the processes that it started. Safe from other threads, and to repeat."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._stopping:
            # Once, although several threads may stop it: a descriptor that is closed twice may
            # belong to another file by then.
            pipe, self._life = self._life, -1
        if pipe >= 0:
            os.close(pipe)

    def close(self) -> None:
        """Stop it and close its pipes. Only for the thread that sends the requests."""
        self.stop()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _send(self, line: bytes) -> None:
        stdin = self._process.stdin
        try:
            while line and stdin is not None:
                # Without a buffer, `write` may take only a part.
                line = line[stdin.write(line) or 0 :]
        except OSError:
            raise _NoAnswerError from None

    def _receive(self, until: float, patience: float) -> Mapping[str, Any]:
        stdout = self._process.stdout
        data = b""
        while stdout is not None and not data.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise _NoAnswerError(f"gave no answer within {patience:g} s")
            block = os.read(stdout.fileno(), _READ_SIZE)
            if not block:
                raise _NoAnswerError
            data += block
        return self._read(data)

    def _read(self, data: bytes) -> Mapping[str, Any]:
        first, _, more = data.partition(b"\n")
        try:
            answer = json.loads(first)
        except (ValueError, RecursionError):
            raise _NoAnswerError("sent output that is not JSON") from None
        if more or not isinstance(answer, dict) or answer.get("id") != self._asked:
            raise _NoAnswerError("answered a different request")
        return answer

    def _ending(self) -> str:
        code = self._process.returncode
        if code < 0:
            with suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with {code}"

    def _read_stderr(self, start: int) -> str:
        with suppress(OSError), self._stderr.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace").strip()[-_MAX_OUTPUT:]
        return ""


class _NoAnswerError(Exception):
    """No answer arrived; the text says how, and is empty when the process ended."""


@dataclass(frozen=True)
class WorkerKind:
    """The command and environment of a worker; workers of one kind are interchangeable."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


StartWorker = Callable[[WorkerKind, Path], WorkerProcess]
_STOP_TIMEOUT = 20.0
"""Seconds that `close` waits for workers to end."""
_HOME_VARIABLES = ("HOME", "TMPDIR")


class WorkerPool:
    """Workers of all kinds. Safe to use from several threads, which includes `close`."""

    def __init__(self, most: int, folder: Path, start: StartWorker | None = None) -> None:
        """Keep at most `most` workers, with their files below `folder`, which need not exist."""
        self._most, self._folder, self._start = most, folder, start or start_worker
        self._numbers = itertools.count(1)
        self._condition = threading.Condition()
        self._idle: list[tuple[WorkerKind, WorkerProcess]] = []
        self._busy: set[WorkerProcess] = set()
        self._pending = 0
        self._closed = False

    @contextmanager
    def worker(self, kind: WorkerKind, *, fresh: bool = False) -> Iterator[WorkerProcess]:
        """Lend a worker to one thread; with `fresh` a new one. One that died is not reused.

        Raises:
            WorkerDiedError: it cannot be started, or the pool is closed.
        """
        worker = self._take(kind, fresh=fresh)
        try:
            yield worker
        finally:
            with self._condition:
                # The condition's lock is reentrant, so `_forget` may take it again.
                keep = worker.lives and not self._closed
                if keep:
                    self._idle.append((kind, worker))
                    self._forget(worker)
            # `close` waits until no worker is busy, so it is forgotten only after it has ended.
            if not keep:
                try:
                    _stop_worker(worker)
                finally:
                    self._forget(worker)

    def close(self) -> None:
        """Stop all workers, busy ones too, and wait until they and their files are gone.

        Must not be called by a thread that has borrowed a worker: it would wait for itself.
        """
        with self._condition:
            self._closed = True
            idle, busy = [worker for _, worker in self._idle], [*self._busy]
            self._idle.clear()
            self._condition.notify_all()
        for worker in busy:
            worker.stop()  # the thread that has borrowed it closes it
        for worker in idle:
            _stop_worker(worker)
        with self._condition:
            self._condition.wait_for(lambda: not self._busy and not self._pending, _STOP_TIMEOUT)

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def count(self) -> int:
        """Number of workers, including those that are starting."""
        with self._condition:
            return len(self._idle) + len(self._busy) + self._pending

    def _take(self, kind: WorkerKind, *, fresh: bool) -> WorkerProcess:
        with self._condition:
            while True:
                if self._closed:
                    raise WorkerDiedError("is not started: kbuild is stopping", "")
                worker = None if fresh else self._of(kind)
                if worker is not None:
                    self._busy.add(worker)
                    return worker
                has_room = len(self._idle) + len(self._busy) + self._pending < self._most
                if has_room or self._idle:
                    break
                self._condition.wait()
            # The pool is full of idle workers of other kinds: one of them makes room.
            if not has_room:
                _stop_worker(self._idle.pop(0)[1])
            # A worker that starts outside of the lock counts as present.
            self._pending += 1
        return self._begin(kind)

    def _begin(self, kind: WorkerKind) -> WorkerProcess:
        worker = None
        try:
            scratch = self._folder / str(next(self._numbers))
            scratch.mkdir(parents=True)
            worker = self._start(kind, scratch)
        finally:
            with self._condition:
                self._pending -= 1
                if worker is not None:
                    self._busy.add(worker)
                closed = self._closed
                self._condition.notify_all()
        # `close` did not see this worker, because it was still starting.
        if closed:
            worker.stop()
        return worker

    def _of(self, kind: WorkerKind) -> WorkerProcess | None:
        """Take an idle worker of that kind; remove those that have ended."""
        for pair in list(self._idle):
            if not pair[1].lives:
                self._idle.remove(pair)
                _stop_worker(pair[1])
            elif pair[0] == kind:
                self._idle.remove(pair)
                return pair[1]
        return None

    def _forget(self, worker: WorkerProcess) -> None:
        with self._condition:
            self._busy.discard(worker)
            self._condition.notify_all()


def start_worker(kind: WorkerKind, scratch: Path) -> WorkerProcess:
    """Start a worker whose `HOME` and `TMPDIR` are a folder of its own."""
    home = scratch / "home"
    home.mkdir()
    env = {**dict(kind.env), **dict.fromkeys(_HOME_VARIABLES, str(home))}
    return WorkerProcess(kind.argv, env, scratch)


def _stop_worker(worker: WorkerProcess) -> None:
    worker.close()
    with suppress(OSError):
        shutil.rmtree(worker.scratch)
