"""Runs the compiler of one unit.

Waits for memory, decides nvcc's threads by jobserver tokens, keeps nvcc's intermediate files
apart, and retries alone what the system killed.
"""

from __future__ import annotations

import os
import select
import sys
import time

from kbuild.build.unit.cache import memory_estimate
from kbuild.system.memory_governor import MemoryGovernor, MemoryReservations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from kbuild.build.unit.command import CompileCommand
    from kbuild.system.unit_settings import LauncherSettings, LogValue

    class HeaderUse(Protocol):
        """`PrecompiledHeaders`, as an attempt needs to know them: their module imports this one."""

        log: dict[str, LogValue]

        def compile(
            self, run: Callable[[list[str]], CompilerResult], is_ended: Callable[[], bool]
        ) -> CompilerResult | None:
            """See `PrecompiledHeaders.compile`."""


_MAKEFLAGS = "MAKEFLAGS"
_FIFO = "--jobserver-auth=fifo:"
_CLIENT_RELEASE = ["13", "0"]
"""The only release of nvcc that is asked to be a jobserver's client: with `--jobserver`, 13.2
generates other device code, also with one thread, so objects would depend on the machine's load."""
_POLL = 0.1
_OBJECT_FOLDER = "--objdir-as-tempdir"


class JobserverTokens:
    """The jobserver's tokens that this launcher holds beyond its own one."""

    def __init__(self, path: str) -> None:
        """`path` is the named pipe; empty when there is no jobserver."""
        self._path = path
        self._held = b""

    def take(self, most: int) -> int:
        """Take up to `most` free tokens without waiting; return the number held."""
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
        """Lend this unit's own token to others while it waits for one of them.

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
        # For reading and writing: a pipe opened for writing alone fails while nobody reads from it.
        return os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def jobserver_pipe(environ: Mapping[str, str]) -> str:
    """The named pipe of the jobserver in MAKEFLAGS; empty when there is none."""
    flags = environ.get(_MAKEFLAGS, "").split()
    return next((flag[len(_FIFO) :] for flag in flags if flag.startswith(_FIFO)), "")


def most_threads(
    command: CompileCommand, settings: LauncherSettings, environ: Mapping[str, str]
) -> int:
    """Threads that the unit could use: 1 where nothing hands out tokens."""
    if settings.tool or not jobserver_pipe(environ):
        return 1
    return max(1, min(command.threads, settings.jobs))


def is_jobserver_client(settings: LauncherSettings) -> bool:
    """True for an nvcc that takes tokens itself."""
    versions = dict(entry.split("=", 1) for entry in settings.compilers.split(";") if "=" in entry)
    version = versions.get("nvcc", versions.get("cuda", ""))
    return version.split(".")[:2] == _CLIENT_RELEASE


def thread_options(threads: int, *, client: bool) -> list[str]:
    """Options for nvcc."""
    if threads == 1:
        return []
    return [f"--threads={threads}", *(["--jobserver"] if client else [])]


_KEEPS = ("--keep", "-keep", "--keep-dir", "-keep-dir", "--save-temps", "-save-temps")


class NvccIntermediates:
    """The folder of nvcc's intermediate files; none if the command keeps the files itself."""

    def __init__(self, command: CompileCommand, run: str) -> None:
        is_kept = any(word.partition("=")[0] in _KEEPS for word in command.options)
        self._folder = "" if is_kept else f"{run}/keep-{os.getpid()}"

    @property
    def options(self) -> list[str]:
        """Options for nvcc."""
        return ["--keep", f"--keep-dir={self._folder}"] if self._folder else []

    def __enter__(self) -> NvccIntermediates:
        if self._folder:
            os.makedirs(self._folder, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._folder:
            return
        for name in os.listdir(self._folder):
            os.unlink(f"{self._folder}/{name}")
        os.rmdir(self._folder)


_POLL_MILLISECONDS = 250
"""Milliseconds between two looks at a running compiler."""
_KILLED_CODE = 137
_KILLED_MESSAGES = (
    b"Killed signal terminated program",  # gcc
    b"died due to signal 9",  # nvcc
    b"unable to execute command: Killed",  # clang
)
NOT_FOUND = 127


class CompilerResult:
    """The result of a compilation."""

    def __init__(self, status: int, diagnostics: bytes) -> None:
        self.status = status
        """Exit status as a shell counts: 128 and the signal for one that was killed."""
        self.messages = diagnostics
        self.start = self.end = time.time()
        self.user = self.system = 0.0
        self.peak = 0
        """Memory of the largest process, in MiB."""

    @property
    def was_killed(self) -> bool:
        """True when the compiler, or a part of it, died of SIGKILL."""
        is_reported = any(word in self.messages for word in _KILLED_MESSAGES)
        return self.status == _KILLED_CODE or (self.status != 0 and is_reported)


def run_compiler(argv: list[str], scratch: str, look: Callable[[int], None]) -> CompilerResult:
    """Run the compiler, with its output in the file `scratch`, which is deleted at once.

    `look` is called with the process id a few times each second, where the system allows it.
    """
    start = time.time()
    handle = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    # Unlinked at once: the descriptor suffices, and a launcher that is killed leaves no file.
    os.unlink(scratch)
    # Duplicates lose O_CLOEXEC: the compiler inherits these two, and no other descriptor of ours.
    streams = [(os.POSIX_SPAWN_DUP2, handle, 1), (os.POSIX_SPAWN_DUP2, handle, 2)]
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=streams)
    except OSError as error:
        return CompilerResult(NOT_FOUND, f"{argv[0]}: {error.strerror}\n".encode())
    _watch_until_exit(pid, look)
    # `wait4` reports the time and memory of this one compiler.
    _, status, used = os.wait4(pid, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    with open(handle, "rb") as file:
        code = os.waitstatus_to_exitcode(status)
        shell_exit_code = code if code >= 0 else 128 - code
        ended = CompilerResult(shell_exit_code, file.read())
    ended.start, ended.end = start, time.time()
    ended.user, ended.system = used.ru_utime, used.ru_stime
    # macOS counts bytes, Linux KiB.
    ended.peak = used.ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return ended


def _watch_until_exit(pid: int, look: Callable[[int], None]) -> None:
    """Call `look` repeatedly until the process has ended."""
    if sys.platform != "linux":
        return
    import select

    try:
        handle = os.pidfd_open(pid)
    except OSError:  # an old kernel
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    # A process's descriptor becomes readable when the process ends.
    while not poll.poll(_POLL_MILLISECONDS):
        look(pid)
    os.close(handle)


_REGROWTH = 1.5
"""Factor for the reservation of a unit after it gave way, applied to the memory it held then."""
_RESERVATIONS_WARNING = "the memory ledger cannot be used: {}"


class CompileAttempts:
    """The attempts to compile one unit; `record` gets what they took."""

    def __init__(  # noqa: PLR0917
        self,
        settings: LauncherSettings,
        command: CompileCommand,
        tokens: JobserverTokens,
        record: dict[str, LogValue],
        warn: Callable[[str], None],
        begin: Callable[[], HeaderUse | None],
    ) -> None:
        """`begin` is called whenever the compiler is about to start, after all waiting.

        It returns the headers with which the unit may start.
        """
        self._settings, self._command = settings, command
        self._tokens, self._record, self._warn = tokens, record, warn
        self._begin = begin
        self.killed: CompilerResult | None = None
        """The attempt that the system killed, when there was one."""

    def perform(self, last: tuple[int, float] | None) -> CompilerResult | None:
        """Compile; `last` is what `PeakHistory` has of the unit. None when time was over before."""
        needed = memory_estimate(self._command.language, last)
        most = most_threads(self._command, self._settings, os.environ)
        ended = self._with_room(needed, most)
        if ended is None or not ended.was_killed:
            return ended
        self.killed = ended
        # A reservation of the whole budget: the retry runs alone.
        return self._with_room(max(needed, self._settings.memory), 1)

    def _with_room(self, needed: int, most: int) -> CompilerResult | None:
        """Attempt until the unit is not killed for others."""
        while True:
            governor, ended = self._within(needed, most)
            if ended is None or not governor.gave_way:
                return ended
            self._record["restarts"] = int(self._record.get("restarts", 0)) + 1
            # Always more than before: an equal reservation could be admitted beside the same units
            # again.
            needed, most = max(needed + 1, int(governor.used * _REGROWTH)), 1

    def _within(self, needed: int, most: int) -> tuple[MemoryGovernor, CompilerResult | None]:
        """Attempt once, with room for `needed` MiB in each of at most `most` threads."""
        reservations = MemoryReservations(
            self._settings.ledger, self._settings.memory, self._settings.jobs
        )
        governor = MemoryGovernor(reservations)
        waited = self._take(reservations, needed, most)
        if waited is None:
            return governor, None
        self._record |= {"weight": needed, "waited": waited}
        try:
            # The headers are looked up after the waiting, which may have taken minutes.
            headers = self._begin()
            ended = self._with_headers(headers, reservations.threads, governor) if headers else None
            # Where another tool starts the compiler, the command's own threads count.
            argv = self._command.argv if self._settings.tool else self._command.plain
            return governor, ended or self._run(reservations.threads, governor, argv)
        finally:
            self._release(reservations)
            if governor.trouble:
                self._warn(_RESERVATIONS_WARNING.format(governor.trouble))

    def _take(self, reservations: MemoryReservations, needed: int, most: int) -> float | None:
        try:
            return reservations.take(needed, self._settings.is_over, most)
        except (OSError, ValueError) as error:
            self._warn(_RESERVATIONS_WARNING.format(error))
            # A ledger that cannot be used fails no build: the unit runs without a reservation.
            reservations.threads = 1
            return 0.0

    def _release(self, reservations: MemoryReservations) -> None:
        try:
            reservations.release()
        except (OSError, ValueError) as error:
            self._warn(_RESERVATIONS_WARNING.format(error))

    def _with_headers(
        self, headers: HeaderUse, count: int, governor: MemoryGovernor
    ) -> CompilerResult | None:
        """Compile with precompiled headers; None where it is to be compiled as usual."""

        def run(argv: list[str]) -> CompilerResult:
            return self._run(count, governor, argv)

        try:
            return headers.compile(run, lambda: governor.gave_way)
        except OSError as error:
            self._warn(f"Torch's headers are read as usual: {error}")
            return None
        finally:
            self._record |= headers.log

    @property
    def _scratch(self) -> str:
        return f"{self._settings.run}/messages-{os.getpid()}"

    def _run(self, count: int, governor: MemoryGovernor, argv: list[str]) -> CompilerResult:
        """Start the compiler with at most `count` threads."""
        scratch = self._scratch
        if self._settings.tool or self._command.language != "CUDA":
            # sccache runs nvcc's steps itself, in a folder that has none of the object's.
            argv = [word for word in argv if not self._settings.tool or word != _OBJECT_FOLDER]
            argv = [*self._settings.tool.split(), *argv]
            return run_compiler(argv, scratch, governor.look)
        client = is_jobserver_client(self._settings)
        try:
            if not client:
                # The first thread has the token that ninja took for this unit.
                count = 1 + self._tokens.take(count - 1)
            self._record |= {"threads": count}
            threads = thread_options(count, client=client)
            with NvccIntermediates(self._command, self._settings.run) as kept:
                return run_compiler([*argv, *threads, *kept.options], scratch, governor.look)
        finally:
            self._tokens.give_back()
