"""Starts processes: exact argv, exact environment, a log that can be re-run, bounded output.

`Runner` is the only place that starts a process; tests replace it.
"""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Protocol, TextIO, TypeAlias

from kbuild.system.os_errors import errors_about

KEPT_CHARACTERS = 1 << 20
"""Characters that are kept of the beginning, and as many of the end."""


@dataclass
class BoundedText:
    """The beginning and the end of a text that comes line by line; short texts are kept whole."""

    limit: int | None = KEPT_CHARACTERS
    """Characters of each end; None keeps everything."""
    _head: list[str] = field(default_factory=list)
    _tail: deque[str] = field(default_factory=deque)
    _head_size: int = 0
    _tail_size: int = 0
    _dropped: int = 0

    def take(self, line: str) -> None:
        """Take one more line, its newline included."""
        if self.limit is None or (not self._tail and self._head_size + len(line) <= self.limit):
            self._head.append(line)
            self._head_size += len(line)
            return
        # Also one line can be longer than everything that is kept.
        self._tail.append(line[-self.limit :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size > self.limit and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft())
            self._dropped += 1

    @property
    def text(self) -> str:
        """The kept lines, with a line that counts those left out between them."""
        gap = [f"[{self._dropped} lines are left out here]\n"] if self._dropped else []
        return "".join((*self._head, *gap, *self._tail))


LineListener = Callable[[str], None]
_Process: TypeAlias = "subprocess.Popen[str]"  # noqa: TID251
NOT_STARTED = 127
"""Exit code of a program that could not be started, as shells count."""


def canonical_interpreter(python: Path) -> Path:
    """Common name of an interpreter that has several names beside each other.

    `python`, `python3` and `python3.11` are one program: what is built must not depend on which of
    them started kbuild.
    """
    names = ("python3", "python") if python.exists() else ()
    others = [python.with_name(name) for name in names]
    return next((other for other in others if other.exists() and other.samefile(python)), python)


@dataclass(frozen=True)
class ProcessResult:
    """A finished process."""

    argv: tuple[str, ...]
    returncode: int
    output: str
    """stdout and stderr, interleaved as they came; the ends of a long one that went elsewhere."""
    seconds: float

    @property
    def ok(self) -> bool:
        """True when the process exited with 0."""
        return self.returncode == 0

    @property
    def command(self) -> str:
        """The command as a shell would take it."""
        return shlex.join(self.argv)


class Runner(Protocol):
    """Starts processes. Tests replace it; nothing else does."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        listen: LineListener | None = None,
        stdin: str | None = None,
        inherit: Sequence[int] = (),
    ) -> ProcessResult:
        """Run a program until it ends. One that cannot be started has exit code 127.

        Args:
            argv: the program, and its arguments.
            cwd: its folder; this process's by default.
            env: its whole environment; this process's by default.
            log: file for its output, after a line with the command. With `log` or `listen`, the
                result has only the beginning and the end of a long output.
            listen: called with each line of its output, without the line break.
            stdin: its input; empty by default.
            inherit: descriptors that it gets beside the standard ones.
        """

    def stop(self) -> None:
        """End every process that runs, and start no other. Called from another thread."""


class LocalRunner:
    """Processes on this machine."""

    def __init__(self) -> None:
        self.programs: set[str] = set()
        self._running: set[_Process] = set()
        self._lock = threading.Lock()
        self._is_stopped = False

    def stop(self) -> None:
        """See `Runner.stop`."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.terminate()

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        listen: LineListener | None = None,
        stdin: str | None = None,
        inherit: Sequence[int] = (),
    ) -> ProcessResult:
        """See `Runner.run`."""
        command = tuple(str(part) for part in argv)
        self.programs.add(command[0])
        start = partial(self._start, command, cwd, env, stdin is not None, tuple(inherit))
        began = time.monotonic()
        ends = BoundedText(None if log is None and listen is None else KEPT_CHARACTERS)
        with nullcontext() if log is None else errors_about(log), _opened(log) as file:
            # The log's first line can be run in a shell like this process's: it names what differs.
            changed = {
                key: value
                for key, value in sorted((env or {}).items())
                if os.environ.get(key) != value
            }
            prefix = "".join(f"{key}={shlex.quote(value)} " for key, value in changed.items())
            where = f"cd {shlex.quote(str(cwd))} && " if cwd else ""
            file.write(f"$ {where}{prefix}{shlex.join(command)}\n")

            def take(line: str) -> None:
                file.write(line)
                ends.take(line)
                if listen is not None:
                    listen(line.rstrip("\n"))

            code = self._stream(start, stdin, take, command[0])
            done = ProcessResult(command, code, ends.text, time.monotonic() - began)
            file.write(f"\n[exit {done.returncode}, {done.seconds:.1f} s]\n")
        return done

    def _stream(
        self, start: Callable[[], _Process], stdin: str | None, take: LineListener, name: str
    ) -> int:
        try:
            process = start()
        except OSError as error:
            take(f"{name}: {error.strerror}\n")
            return NOT_STARTED
        with process:
            try:
                if stdin is not None and process.stdin is not None:
                    # Beside reading: a process that prints before it reads would fill its pipe, and
                    # both would wait. The pipe is the thread's alone: leaving the block would close
                    # it too, and fail on what a process that has ended did not read.
                    feed = (process.stdin, stdin)
                    process.stdin = None
                    threading.Thread(target=_feed, args=feed, daemon=True).start()
                for line in process.stdout or ():
                    take(line)
                return process.wait()
            except BaseException:
                process.terminate()
                raise
            finally:
                with self._lock:
                    self._running.discard(process)

    def _start(
        self,
        argv: tuple[str, ...],
        cwd: Path | None,
        env: Mapping[str, str] | None,
        is_fed: bool,
        inherit: tuple[int, ...],
    ) -> _Process:
        with self._lock:
            # Checked under the lock: otherwise a process could start after `stop` has ended all
            # others.
            if self._is_stopped:
                raise InterruptedError(errno.EINTR, "not started: kbuild is stopping")
            process = subprocess.Popen(  # noqa: TID251 - the only place that may
                argv,
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
                pass_fds=inherit,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self._running.add(process)
            return process


def _feed(pipe: IO[str], text: str) -> None:
    """Write the standard input of a process, and close it."""
    with suppress(BrokenPipeError), pipe:  # what it does not read is its own business
        pipe.write(text)


def _opened(log: Path | None) -> TextIO:
    """Open the log for a process's output; the null device without a log."""
    if log is None:
        return Path(os.devnull).open("w", errors="replace")
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("w", encoding="utf-8", errors="surrogateescape", buffering=1)
