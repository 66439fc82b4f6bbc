"""A GNU jobserver: one pool of tokens for every compiler process of a run.

ninja (from 1.13) and nvcc (from 13) are its clients through MAKEFLAGS. By the protocol each client
owns one token from the start, which here is the one that `acquire` took for it.
https://www.gnu.org/software/make/manual/html_node/POSIX-Jobserver.html
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

_TOKEN = b"+"
_POLL = 0.1


class JobServer:
    """`jobs` tokens in the named pipe at `path`, which is open as `pipe`."""

    def __init__(self, path: Path, jobs: int, pipe: int) -> None:
        self.path = path
        self.jobs = jobs
        self._pipe = pipe
        self._closed = False
        self._guard = Lock()
        """Held while the pipe is used or closed: its number may be another file's afterwards."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What makes a process a client."""
        return {"MAKEFLAGS": f" -j{self.jobs} --jobserver-auth=fifo:{self.path}"}

    def acquire(self, ended: Callable[[], bool]) -> bool:
        """Wait for a token; False when `ended()` came first."""
        while not ended():
            ready, _, _ = select.select([self._pipe], [], [], _POLL)
            if ready and self._read(1):
                return True
        return False

    def release(self) -> None:
        """Put a token back; after the run, which a thread may outlive, nobody wants it."""
        with self._guard:
            if not self._closed:
                os.write(self._pipe, _TOKEN)

    def close(self) -> None:
        """Close the pipe."""
        with self._guard:
            self._closed = True
            os.close(self._pipe)

    def drain(self) -> int:
        """Take all tokens that nobody holds; returns how many there were."""
        return self._read(self.jobs)

    def _read(self, most: int) -> int:
        with self._guard:
            try:
                return 0 if self._closed else len(os.read(self._pipe, most))
            except BlockingIOError:  # another client was faster
                return 0


@contextmanager
def serve(folder: Path, jobs: int) -> Iterator[JobServer]:
    """A jobserver in `folder`, whose path must not hold white space."""
    path = folder / "jobserver"
    os.mkfifo(path, 0o600)
    # Opened for reading too, so that tokens stay when no client is there.
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    server = JobServer(path, jobs, pipe)
    try:
        os.write(pipe, _TOKEN * jobs)
        yield server
    finally:
        server.close()
        path.unlink(missing_ok=True)
