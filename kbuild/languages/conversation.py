"""The door to a worker: a process that is asked one thing after the other."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Makes = Callable[[str], bool]
_SAID = 4000
"""Characters of its last words that are worth keeping."""
_LAST_WORDS = 5
"""Seconds that a worker has for them once it answers no more."""
_BLOCK = 1 << 16
_PEAK = re.compile(r"^VmHWM:\s+(?P<kib>\d+)", re.MULTILINE)


class WorkerDiedError(Exception):
    """The worker gave no answer; its last words are the argument."""

    def __init__(self, how: str, said: str) -> None:
        super().__init__(how)
        self.how, self.said = how, said


class Conversation:
    """One worker.

    It is the first of a process group of its own. The kernel ends the group when this process is
    gone, however that happens, see `worker/__main__.py`.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], scratch: Path) -> None:
        """Start it; the last argument is added here: the descriptor of its life line.

        Args:
            argv: the program.
            env: its whole environment.
            scratch: a folder of its own, which exists.
        """
        self.scratch = scratch
        self._words = scratch / "stderr"
        self._stopping = threading.Lock()
        ours, self._life = os.pipe()
        try:
            with self._words.open("wb") as words:
                self._process = subprocess.Popen(  # noqa: TID251 - this is the door
                    (*argv, str(ours)),
                    env=dict(env),
                    cwd=scratch,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=words,
                    bufsize=0,
                    pass_fds=(ours,),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._life)
            raise WorkerDiedError(f"`{argv[0]}` cannot be started: {error.strerror}", "") from None
        finally:
            os.close(ours)
        self._asked = 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """False when it has ended."""
        return self._process.poll() is None

    @property
    def peak(self) -> int:
        """MiB of physical memory that it held at most; 0 when it has ended."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        found = _PEAK.search(status)
        return int(found["kib"]) // 1024 if found else 0

    @property
    def cpu(self) -> tuple[float, float]:
        """Seconds of the processor that it and what it waited for took: user, system."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return 0.0, 0.0
        fields = status.rpartition(")")[2].split()
        user, system, user_of_children, system_of_children = map(int, fields[11:15])
        ticks = os.sysconf("SC_CLK_TCK")
        return (user + user_of_children) / ticks, (system + system_of_children) / ticks

    def ask(
        self, request: Mapping[str, Any], patience: float, makes: Makes = lambda _: True
    ) -> Mapping[str, Any]:
        """The answer to one request.

        Args:
            request: see `worker.protocol`.
            patience: seconds.
            makes: asked whether the worker is to make the kernel with that digest.

        Raises:
            WorkerDiedError: it ended, answered something else, or took longer than `patience`
                seconds; it is gone then.
        """
        self._asked += 1
        heard = self._words.stat().st_size
        line = json.dumps({**request, "id": self._asked}).encode() + b"\n"
        try:
            self._send(line)
            until = time.monotonic() + patience
            answer = self._receive(until, patience)
            while "kernel" in answer:
                line = json.dumps({"id": self._asked, "make": makes(answer["kernel"])}).encode()
                self._send(line + b"\n")
                answer = self._receive(until, patience)
        except _SilenceError as silence:
            if not str(silence):  # it is about to end by itself, and says why
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LAST_WORDS)
            self.stop()
            how = str(silence) or self._ending()
            raise WorkerDiedError(how, self._said(heard)) from None
        return answer

    def stop(self) -> None:
        """End it and what it started. May be called from another thread, and twice."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._stopping:
            life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    def close(self) -> None:
        """End it, and let go of what leads to it. Only for the thread that asks."""
        self.stop()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _send(self, line: bytes) -> None:
        stdin = self._process.stdin
        try:
            while line and stdin is not None:
                line = line[stdin.write(line) or 0 :]
        except OSError:
            raise _SilenceError from None

    def _receive(self, until: float, patience: float) -> Mapping[str, Any]:
        stdout = self._process.stdout
        data = b""
        while stdout is not None and not data.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise _SilenceError(f"gave no answer within {patience:g} s")
            block = os.read(stdout.fileno(), _BLOCK)
            if not block:
                raise _SilenceError
            data += block
        return self._read(data)

    def _read(self, data: bytes) -> Mapping[str, Any]:
        first, _, more = data.partition(b"\n")
        try:
            answer = json.loads(first)
        except (ValueError, RecursionError):
            raise _SilenceError("answered what is no JSON") from None
        if more or not isinstance(answer, dict) or answer.get("id") != self._asked:
            raise _SilenceError("answered what was not asked")
        return answer

    def _ending(self) -> str:
        code = self._process.returncode
        if code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with {code}"

    def _said(self, start: int) -> str:
        with suppress(OSError), self._words.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace").strip()[-_SAID:]
        return ""


class _SilenceError(Exception):
    """No answer comes; how, if it is not by ending."""
