"""The budget of one run.

Processes (a GNU jobserver), memory (what is free and what control groups allow) and time; and
the run's temporary folder.
"""

from __future__ import annotations

import os
import select
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Event, Lock

from kbuild.system import cache_sweep
from kbuild.system.errors import UsageError
from kbuild.system.temporary import locked_temporary_folder
from kbuild.system.unit_settings import LauncherSettings

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
        """Variables that make a process a client of the jobserver."""
        # The space is needed: make takes a first word at the very beginning for one-letter options.
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
        """Take all free tokens; returns their number."""
        return self._read(self.jobs)

    def _read(self, most: int) -> int:
        with self._guard:
            try:
                return 0 if self._closed else len(os.read(self._pipe, most))
            except BlockingIOError:  # another client was faster
                return 0


@contextmanager
def start_jobserver(folder: Path, jobs: int) -> Iterator[JobServer]:
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


_SHARE = 0.9
_FALLBACK = 4096
"""MiB, if the system reports nothing."""
_KIB, _MIB = 1 << 10, 1 << 20


def memory_budget(root: Path = Path("/")) -> int:
    """MiB for all compilers of a run: the least of what is free and what is allowed, times 0.9.

    `root` is where `proc` and `sys` are found.
    """
    # A container may have less than its machine has free, and the other way round.
    rooms = [room for room in (available_memory(root), *cgroup_headroom(root)) if room is not None]
    # A tenth is left for linkers, ninja, and what else runs on the machine.
    return max(1, int(min(rooms, default=_half_of_physical_memory()) * _SHARE))


def _half_of_physical_memory() -> int:
    """MiB, if the kernel does not report free memory: macOS."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB // 2
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def available_memory(root: Path = Path("/")) -> int | None:
    """MiB that the kernel can give without swapping."""
    for line in _lines_of(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // _KIB
    return None


def cgroup_headroom(root: Path = Path("/")) -> Iterator[int]:
    """MiB left in each control group that this process is in and that has a limit."""
    for line in _lines_of(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        places: tuple[Path, ...]
        # Version 2 has the one line `0::PATH`, version 1 a line for each hierarchy.
        if number == "0" and not controllers:
            # Systems that have both versions mount version 2 in `unified`.
            places = (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified")
            files = ("memory.max", "memory.current", "inactive_file ")
        elif "memory" in controllers.split(","):
            places = (root / "sys/fs/cgroup/memory",)
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        else:
            continue
        for place in places:
            # Rooms of a group and of all groups around it; a container may see only the outermost.
            limit_file, usage_file, reclaimable = files
            group = PurePosixPath(path.lstrip("/"))
            for name in (group, *group.parents):
                folder = place / name
                limit = _number(folder / limit_file)
                if limit is not None:
                    used = (_number(folder / usage_file) or 0) - _cache_of(folder, reclaimable)
                    yield max(0, limit - used) // _MIB


def _cache_of(folder: Path, name: str) -> int:
    """Bytes of the group's page cache that the kernel takes back when memory is short."""
    for line in _lines_of(folder / "memory.stat"):
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _number(path: Path) -> int | None:
    """The file's number; None for `max`, and for a group or a file that is not there."""
    text = "".join(_lines_of(path)).strip()
    return int(text) if text.isdigit() else None


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


OTHER_LAUNCHER_VARIABLE = "KBUILD_COMPILER_LAUNCHER"
_TEMPORARY = "tmp"


@dataclass(frozen=True)
class Budget:
    """Limits that all variants of a run share."""

    jobs: int
    memory: int
    """MiB."""
    deadline: float | None = None
    """Seconds since the epoch, after which nothing is started."""

    @property
    def is_over(self) -> bool:
        """True when nothing may start any more."""
        return self.deadline is not None and time.time() >= self.deadline


def make_budget(
    jobs: int | None = None, memory: int | None = None, seconds: float | None = None
) -> Budget:
    """The requested budget; by default, all of this machine's."""
    return Budget(
        jobs or available_processors(),
        memory or memory_budget(),
        None if seconds is None else time.time() + seconds,
    )


def available_processors() -> int:
    """Processors that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return count or 1


@dataclass(frozen=True)
class Run:
    """A budget in force. `folder` holds the jobserver, the ledger and the log of units."""

    budget: Budget
    folder: Path
    cache: Path
    server: JobServer | None
    tool: str = ""
    """`ccache` or `sccache`, when the user wants that instead of kbuild's object cache."""
    keeps: bool = True
    """False when no object is to be kept: `KBUILD_CACHE=off`."""
    limit: int = 0
    """Bytes that the cached objects may take."""
    lock: tuple[int, ...] = ()
    """Descriptors that hold the folder: whoever writes to it inherits them."""
    headers: int = 0
    """Bytes that precompiled headers may take; 0 when all headers are to be read as usual."""
    stopped: Event = field(default_factory=Event)

    @property
    def log(self) -> Path:
        """Log of the units, one JSON object per line."""
        return Path(self._settings("", Path(), "").log)

    @property
    def temporary(self) -> dict[str, str]:
        """Variables that move a process's temporary files to a folder that the run deletes."""
        return {"TMPDIR": str(self.folder / _TEMPORARY)}

    @property
    def is_ending(self) -> bool:
        """True when no new work may start."""
        return self.stopped.is_set() or self.budget.is_over

    def environment(
        self, variant: str, root: Path, compilers: Iterable[tuple[str, str]] = ()
    ) -> dict[str, str]:
        """Environment to build a variant of the project at `root`, on top of its toolchain's.

        `compilers` are names and versions of what compiles.
        """
        client = self.server.environment if self.server else {}
        versions = ";".join(f"{name}={version}" for name, version in compilers)
        return {
            **self._settings(variant, root, versions).to_environment(),
            **client,
            **self.temporary,
        }

    def _settings(self, variant: str, root: Path, compilers: str) -> LauncherSettings:
        return LauncherSettings(
            run=str(self.folder),
            cache=str(self.cache) if self.keeps else "",
            memory=self.budget.memory,
            tool=self.tool,
            deadline=self.budget.deadline or 0.0,
            variant=variant,
            root=str(root),
            compilers=compilers,
            jobs=self.budget.jobs if self.server else 0,
            headers=self.headers,
        )


@contextmanager
def open_run(
    budget: Budget,
    cache: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    keeps: bool = True,
) -> Iterator[Run]:
    """A run in a folder of its own, which is removed at the end.

    Objects are kept where both `keeps` and the environment say so. Without a jobserver, every
    ninja gets `--jobs` of its own.

    Raises:
        UsageError: `KBUILD_COMPILER_LAUNCHER` names a program that is not there, or
            `KBUILD_CACHE_SIZE` or `KBUILD_PRECOMPILED_HEADERS` no amount.
    """
    tool = other_launcher(environ)
    tool = tool if keeps else ""
    keeps = keeps and cache_sweep.is_cache_enabled(environ)
    limit, headers = cache_sweep.cache_size_limit(environ), cache_sweep.headers_size_limit(environ)
    with ExitStack() as stack:
        held = stack.enter_context(locked_temporary_folder("run"))
        folder = held.folder
        (folder / _TEMPORARY).mkdir()
        # MAKEFLAGS cannot hold a path with white space.
        can_serve = len(str(folder).split()) == 1
        server = stack.enter_context(start_jobserver(folder, budget.jobs)) if can_serve else None
        yield Run(budget, folder, cache, server, tool, keeps, limit, held.lock, headers)


def other_launcher(environ: Mapping[str, str]) -> str:
    """The compiler launcher that the user prefers to kbuild's cache; empty without one.

    Raises:
        UsageError: it is not there.
    """
    asked = environ.get(OTHER_LAUNCHER_VARIABLE, "")
    if asked and shutil.which(asked) is None:
        raise UsageError(
            f"{OTHER_LAUNCHER_VARIABLE}: there is no program `{asked}`",
            hint="install it, or unset the variable to use kbuild's own object cache",
        )
    return asked
