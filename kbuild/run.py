"""The one door to other processes: exact argv, exact environment, a log that can be re-run."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO, TypeAlias

from kbuild.output import KEPT, Ends
from kbuild.storage import naming

Listener = Callable[[str], None]
_Process: TypeAlias = "subprocess.Popen[str]"  # noqa: TID251
NOT_STARTED = 127
"""Exit code of a program that could not be started, as shells count."""


def interpreter_name(python: Path) -> Path:
    """One name for an interpreter that has several beside each other.

    `python`, `python3` and `python3.11` are one program: what is built must not depend on which of
    them started kbuild.
    """
    names = ("python3", "python") if python.exists() else ()
    others = (python.with_name(name) for name in names)
    return next((other for other in others if other.exists() and other.samefile(python)), python)


@dataclass(frozen=True)
class Done:
    """A finished process."""

    argv: tuple[str, ...]
    returncode: int
    output: str
    """stdout and stderr, interleaved as they came; the ends of a long one that went to a log."""
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
        listen: Listener | None = None,
        stdin: str | None = None,
        inherit: Sequence[int] = (),
    ) -> Done:
        """Run to the end. `env` is the whole environment (default: this process's).

        Output goes to `log` as it comes (after a line with the command), and line by line to
        `listen`. With a log, no more than the ends of a long output are kept in memory.
        `inherit` are the descriptors that it gets beside the standard ones.
        A program that cannot be started counts as exit code 127 with the reason as output.
        """
        ...

    def stop(self) -> None:
        """End every process that runs, and start no other. Called from another thread."""
        ...


def become(argv: Sequence[str], cwd: Path) -> None:
    """Go on as another program, which gets this one's terminal; nothing comes after it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(cwd)
    os.execvp(argv[0], tuple(argv))  # noqa: S606 - the door, for programs that talk to the user


class LocalRunner:
    """Processes on this machine."""

    def __init__(self) -> None:
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
        listen: Listener | None = None,
        stdin: str | None = None,
        inherit: Sequence[int] = (),
    ) -> Done:
        """See `Runner.run`."""
        command = tuple(str(part) for part in argv)
        start = partial(self._start, command, cwd, env, stdin is not None, tuple(inherit))
        began = time.monotonic()
        ends = Ends(None if log is None else KEPT)
        with nullcontext() if log is None else naming(log), _opened(log) as file:
            file.write(_first_line(command, cwd, env))

            def take(line: str) -> None:
                file.write(line)
                ends.take(line)
                if listen is not None:
                    listen(line.rstrip("\n"))

            code = self._stream(start, stdin, take, command[0])
            done = Done(command, code, ends.text, time.monotonic() - began)
            file.write(f"\n[exit {done.returncode}, {done.seconds:.1f} s]\n")
        return done

    def _stream(
        self, start: Callable[[], _Process], stdin: str | None, take: Listener, name: str
    ) -> int:
        try:
            process = start()
        except OSError as error:
            take(f"{name}: {error.strerror}\n")
            return NOT_STARTED
        with process:
            try:
                if stdin is not None and process.stdin is not None:
                    with suppress(BrokenPipeError):  # what it does not read is its own business
                        process.stdin.write(stdin)
                        process.stdin.close()
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
            if self._is_stopped:
                raise InterruptedError(errno.EINTR, "not started, kbuild is stopping")
            process = subprocess.Popen(  # noqa: TID251 - this is the door
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


def _opened(log: Path | None) -> TextIO:
    """Where a process's words go; nowhere when there is no log."""
    if log is None:
        return Path(os.devnull).open("w", errors="replace")
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("w", encoding="utf-8", errors="surrogateescape", buffering=1)


def _first_line(argv: tuple[str, ...], cwd: Path | None, env: Mapping[str, str] | None) -> str:
    changed = {
        key: value for key, value in sorted((env or {}).items()) if os.environ.get(key) != value
    }
    prefix = "".join(f"{key}={shlex.quote(value)} " for key, value in changed.items())
    where = f"cd {shlex.quote(str(cwd))} && " if cwd else ""
    return f"$ {where}{prefix}{shlex.join(argv)}\n"
