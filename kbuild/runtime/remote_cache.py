"""A cache that several machines share: asked where the local one has no answer, and filled by it.

It costs at most an allowance more than it saves: the time for which a build waits for it is
compared with the time that the same entries took to make. Requests run in threads that nobody has
to wait for. Nothing that goes wrong here fails a build.

    <root>/kbuild-1/<kind>/<kk>/<rest>     one sealed file per name
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol, TypeVar

from kbuild.errors import DamagedFileError, KbuildError, ToolchainError, UsageError
from kbuild.runtime.cache_entries import MAX_ENTRY_BYTES, seal, unseal

REMOTE_CACHE_VARIABLE = "KBUILD_REMOTE_CACHE"
LAYOUT = "kbuild-1"
"""Folder of the layout, so that another one can lie beside it."""
_REQUEST_SECONDS = 30.0
"""For one file, at most."""
_ALLOWANCE = 5.0
"""Seconds that a build may wait in all beyond what it has saved."""
_UPLOAD_SECONDS = 60.0
"""For what is still to be sent when a build ends."""
_LONGEST = 86400.0
"""Seconds that making an entry can have taken."""
_FAILURES = 3
"""Requests in a row that fail before no more are made."""
_READERS, _WRITERS = 8, 2
_MEGABYTE = 1e6

T = TypeVar("T")


class RemoteStore(Protocol):
    """Where the files of a shared cache are."""

    @property
    def shown(self) -> str:
        """Its address without credentials."""

    def read(self, path: str, limit: int) -> bytes | None:
        """A file of at most `limit` bytes; None where there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Put a file there; readers see all of it or nothing."""


@dataclass
class RemoteStatistics:
    """What a command has had from the shared cache. Sizes in bytes, times in seconds."""

    hits: int = 0
    misses: int = 0
    received: int = 0
    waited: float = 0.0
    saved: float = 0.0
    """What making the same took, where it was made."""
    stored: int = 0
    sent: int = 0


class _DaemonThreads:
    """A few threads that end with the process, whatever they wait for."""

    def __init__(self, count: int) -> None:
        self._count, self._started = count, 0
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()

    def submit(self, action: Callable[[], T]) -> Future[T]:
        """What comes of the action."""
        future: Future[T] = Future()

        def perform() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001 - for the one who waits
                with suppress(InvalidStateError):
                    future.set_exception(error)

        self._tasks.put(perform)
        with self._lock:
            if self._started < self._count:
                self._started += 1
                threading.Thread(target=self._serve, daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            self._tasks.get()()


class RemoteCache:
    """One shared cache as a command uses it. Safe to use from several threads."""

    def __init__(
        self,
        open_store: Callable[[], RemoteStore],
        shown: str,
        warn: Callable[[str], None],
        *,
        writes: bool = True,
        secret: bytes = b"",
        allowance: float = _ALLOWANCE,
        request_seconds: float = _REQUEST_SECONDS,
    ) -> None:
        """Nothing is connected before it is needed.

        Args:
            open_store: connects; raises a `KbuildError`.
            shown: the address without credentials, for messages.
            warn: takes a message for the user.
            writes: False only reads.
            secret: signs what is sent; without its signature nothing is accepted.
            allowance: seconds that the command may wait beyond what it has saved.
            request_seconds: for one file.
        """
        self._open, self.shown, self._warn = open_store, shown, warn
        self._secret, self._allowance, self._patience = secret, allowance, request_seconds
        self._reads, self._writes = True, writes
        self._readers, self._writers = _DaemonThreads(_READERS), _DaemonThreads(_WRITERS)
        self._lock = threading.Lock()
        self._store: RemoteStore | None = None
        self._uploads: list[Future[None]] = []
        self._failures = 0
        self._warned: set[str] = set()
        self._sent: set[str] = set()
        self.statistics = RemoteStatistics()

    @property
    def is_asked(self) -> bool:
        """False once it has failed, or has cost more time than it saved."""
        return self._reads

    @property
    def is_written(self) -> bool:
        """False for a cache that is only read."""
        return self._writes

    @property
    def is_signed(self) -> bool:
        """True where only what was signed with a secret is accepted."""
        return bool(self._secret)

    @property
    def summary(self) -> str:
        """What the command had of it, in one line; empty when nothing was asked or stored."""
        facts = self.statistics
        if not (facts.hits or facts.misses or facts.stored):
            return ""
        received = f"{facts.received / _MEGABYTE:.1f} MB in {facts.waited:.1f} s"
        saved = f", {facts.saved:.0f} s of work saved" if facts.hits else ""
        stored = f"; {facts.stored} stored, {facts.sent / _MEGABYTE:.1f} MB" if facts.stored else ""
        asked = f"{facts.hits} of {facts.hits + facts.misses} entries"
        return f"shared cache {self.shown}: {asked} ({received}{saved}){stored}"

    def connect(self) -> None:
        """Have the driver that the address needs.

        Raises:
            UsageError: there is no such kind of address.
            ToolchainError: the driver is not installed.
        """
        with self._lock:
            if self._store is not None or not self._reads:
                return
            try:
                self._store = self._open()
            except (UsageError, ToolchainError):
                raise
            except KbuildError as error:
                self._reads = self._writes = False
                problem = error.message
            else:
                return
        self._warn_once("failed", f"{problem}; the build goes on without it")

    def request(self, name: str, limit: int = MAX_ENTRY_BYTES) -> Future[bytes | None]:
        """Ask for what was stored under a name; `receive` waits for it. See `connect`."""
        self.connect()
        return self._readers.submit(lambda: self._read(name, limit))

    def receive(self, request: Future[bytes | None], worth: float = 0.0) -> bytes | None:
        """What was asked for; None where it is not there, is refused, or takes too long.

        Args:
            request: as `request` has given it.
            worth: seconds that making it takes, where they are known: it may take longer by them.
        """
        if not self._reads:
            request.cancel()
            return None
        began = time.monotonic()
        room = self._allowance + self.statistics.saved - self.statistics.waited
        room += _plausible(worth)
        data, problem = None, ""
        try:
            data = request.result(max(0.0, min(self._patience, room)))
        except FutureTimeoutError:
            request.cancel()
            problem = "it did not answer in time" if room > self._patience else ""
        except DamagedFileError as error:
            self._warn_once(
                "refused", f"it has a damaged entry, which is not used: {error.message}"
            )
        except KbuildError as error:
            problem = error.message
        except Exception as error:  # noqa: BLE001 - drivers raise what they like
            problem = f"{type(error).__name__} in its driver"
        self._account(time.monotonic() - began, problem)
        return data

    def get(self, name: str, limit: int = MAX_ENTRY_BYTES) -> bytes | None:
        """`request` and `receive` in one."""
        return self.receive(self.request(name, limit)) if self._reads else None

    def count(self, *, hit: bool, received: int = 0, saved: float = 0.0) -> None:
        """Take account of one entry; `saved` are the seconds that it took to make."""
        with self._lock:
            if hit:
                self.statistics.hits += 1
                self.statistics.received += received
                self.statistics.saved += _plausible(saved)
            else:
                self.statistics.misses += 1

    def put(self, make: Callable[[], Iterable[tuple[str, bytes]]]) -> None:
        """Send files in the background: `make` gives names and contents, and is called there.

        What names others comes after them.
        """
        self.connect()
        if self._writes:
            with self._lock:
                self._uploads.append(self._writers.submit(lambda: self._send(make)))

    def is_news(self, name: str) -> bool:
        """True the first time: what several variants have is sent once."""
        with self._lock:
            is_new = name not in self._sent
            self._sent.add(name)
        return is_new

    def finish(self, seconds: float = _UPLOAD_SECONDS) -> None:
        """Wait until everything was sent, but only for so long."""
        until, left = time.monotonic() + seconds, 0
        while self._uploads:
            with self._lock:
                upload = self._uploads.pop(0)
            try:
                upload.result(max(0.0, until - time.monotonic()))
            except FutureTimeoutError:
                upload.cancel()
                left += 1
        if left:
            self._warn_once("slow", f"{left} new entries were not sent within {seconds:.0f} s")

    def read_now(self, name: str, limit: int = MAX_ENTRY_BYTES) -> bytes | None:
        """What was stored under a name, in this thread: for those who prepare an upload."""
        store = self._store
        data = None if store is None else store.read(_path(name), limit)
        try:
            return None if data is None else unseal(name, data, self._secret, limit)
        except DamagedFileError:
            return None  # it is replaced

    def _read(self, name: str, limit: int) -> bytes | None:
        store = self._store
        data = None if store is None or not self._reads else store.read(_path(name), limit)
        return None if data is None else unseal(name, data, self._secret, limit)

    def _send(self, make: Callable[[], Iterable[tuple[str, bytes]]]) -> None:
        sent = 0
        try:
            for name, content in make():
                store = self._store
                if store is None or not self._writes:
                    return
                data = seal(name, content, self._secret)
                store.write(_path(name), data)
                sent += len(data)
        except (OSError, DamagedFileError):  # the entry has gone meanwhile
            return
        except KbuildError as error:
            self._writes = False
            self._warn_once("store", f"nothing can be stored in it: {error.message}")
        except Exception as error:  # noqa: BLE001 - drivers raise what they like
            self._writes = False
            self._warn_once("store", f"{type(error).__name__} in its driver: nothing is stored")
        else:
            with self._lock:
                self.statistics.sent += sent
                self.statistics.stored += 1 if sent else 0

    def _account(self, seconds: float, problem: str) -> None:
        with self._lock:
            self.statistics.waited += seconds
            self._failures = self._failures + 1 if problem else 0
            waited, saved = self.statistics.waited, self.statistics.saved
            if self._failures >= _FAILURES:
                self._reads = self._writes = False
            is_slow = waited >= self._allowance + saved
            if is_slow:
                self._reads = False
        if problem:
            self._warn_once("failed", f"{problem}; the build goes on without it")
        elif is_slow:
            text = f"it took {waited:.1f} s and saved {saved:.1f} s of compiling"
            self._warn_once("failed", f"{text}; the build goes on without it")

    def _warn_once(self, kind: str, message: str) -> None:
        with self._lock:
            is_new = kind not in self._warned
            self._warned.add(kind)
        if is_new:
            self._warn(f"the shared cache {self.shown} ({REMOTE_CACHE_VARIABLE}): {message}")


def _plausible(seconds: float) -> float:
    """Seconds that an entry states; none where nothing can have taken so long."""
    return seconds if 0 <= seconds <= _LONGEST else 0.0


def _path(name: str) -> str:
    return f"{LAYOUT}/{name}"
