"""How many architectures one nvcc compiles at a time: as many as the jobserver has tokens for.

nvcc's threads change neither its output nor what the object is looked up by, so they are decided
when the unit starts. Every thread beyond the first is a process of `--jobs` and needs a token:

- nvcc 13 takes tokens itself (`--jobserver`) whenever a part is ready, and puts them back after it;
- for an older nvcc the launcher takes those that are left, and puts them back when the unit ends.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbuild.build.unit.command import Command
    from kbuild.build.unit.settings import Settings

_MAKEFLAGS = "MAKEFLAGS"
_FIFO = "--jobserver-auth=fifo:"
_FIRST_CLIENT = 13
"""The nvcc that is a jobserver's client itself."""
_POLL = 0.1


class Tokens:
    """The jobserver's tokens that this launcher holds beyond its own one."""

    def __init__(self, path: str) -> None:
        """`path` is the named pipe; empty when there is no jobserver."""
        self._path = path
        self._held = b""

    def take(self, most: int) -> int:
        """Take what is left, `most` at the most, without waiting; returns how many."""
        if self._path and most > 0:
            pipe = self._open()
            try:
                self._held += os.read(pipe, most)
            except BlockingIOError:  # none is left
                pass
            finally:
                os.close(pipe)
        return len(self._held)

    def give_back(self) -> None:
        """Put back what was taken."""
        held, self._held = self._held, b""
        self._put(held)

    def lend(self, wait: Callable[[], None], expired: Callable[[], bool]) -> None:
        """Let others have this unit's own token while it waits for one of them.

        It takes one again afterwards; not when `expired()`, after which there are none.
        """
        if not self._path:
            wait()
            return
        self._put(b"+")
        try:
            wait()
        finally:
            self._regain(expired)

    def _regain(self, expired: Callable[[], bool]) -> None:
        pipe = self._open()
        try:
            while not expired():
                if select.select([pipe], [], [], _POLL)[0]:
                    try:
                        os.read(pipe, 1)
                    except BlockingIOError:  # another was faster
                        continue
                    return
        finally:
            os.close(pipe)

    def _put(self, tokens: bytes) -> None:
        if tokens:
            pipe = self._open()
            os.write(pipe, tokens)
            os.close(pipe)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def jobserver(environ: Mapping[str, str]) -> str:
    """The named pipe of the jobserver in MAKEFLAGS; empty when there is none."""
    words = environ.get(_MAKEFLAGS, "").split()
    return next((word[len(_FIFO) :] for word in words if word.startswith(_FIFO)), "")


def most_threads(command: Command, settings: Settings, environ: Mapping[str, str]) -> int:
    """Threads that the unit could use: 1 where nothing hands out tokens."""
    if settings.tool or not jobserver(environ):
        return 1
    return max(1, min(command.threads, settings.jobs))


def is_client(settings: Settings) -> bool:
    """True for an nvcc that takes tokens itself."""
    versions = dict(entry.split("=", 1) for entry in settings.compilers.split(";") if "=" in entry)
    major = versions.get("nvcc", versions.get("cuda", "")).partition(".")[0]
    return major.isdigit() and int(major) >= _FIRST_CLIENT


def threads_words(threads: int, *, client: bool) -> list[str]:
    """Options for nvcc."""
    if threads == 1:
        return []
    return [f"--threads={threads}", *(["--jobserver"] if client else [])]
