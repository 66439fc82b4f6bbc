"""One run's budget of processes, memory and time, and the folder where its units keep to it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from kbuild.build import objectcache
from kbuild.build.jobserver import JobServer, serve
from kbuild.build.memory import memory_budget
from kbuild.build.unit.settings import Settings
from kbuild.errors import UsageError
from kbuild.run import interpreter_name
from kbuild.scratch import scratch

LAUNCHED = ("CXX", "CUDA", "HIP", "OBJCXX")
"""CMake languages whose compilers get the launcher."""
OTHER_LAUNCHER = "KBUILD_COMPILER_LAUNCHER"
_TEMPORARY = "tmp"


@dataclass(frozen=True)
class Budget:
    """What all variants of a run may take together."""

    jobs: int
    memory: int
    """MiB."""
    deadline: float | None = None
    """Seconds since the epoch, after which nothing is started."""

    @property
    def is_over(self) -> bool:
        """True when nothing may start any more."""
        return self.deadline is not None and time.time() >= self.deadline


def budget_of(
    jobs: int | None = None, memory: int | None = None, seconds: float | None = None
) -> Budget:
    """The budget that was asked for; what was not asked for is what this machine has."""
    return Budget(
        jobs or processors(),
        memory or memory_budget(),
        None if seconds is None else time.time() + seconds,
    )


def processors() -> int:
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
    stopped: Event = field(default_factory=Event)

    @property
    def log(self) -> Path:
        """One JSON object per unit."""
        return Path(self._settings("", Path(), "").log)

    @property
    def temporary(self) -> dict[str, str]:
        """What has a process put its temporary files where they are gone with the run."""
        return {"TMPDIR": str(self.folder / _TEMPORARY)}

    @property
    def is_ending(self) -> bool:
        """True when no new work may start."""
        return self.stopped.is_set() or self.budget.is_over

    def environment(
        self, variant: str, root: Path, compilers: Iterable[tuple[str, str]] = ()
    ) -> dict[str, str]:
        """For the build of one variant of the project at `root`, on top of its toolchain's.

        `compilers` are names and versions of what compiles.
        """
        client = self.server.environment if self.server else {}
        versions = ";".join(f"{name}={version}" for name, version in compilers)
        return {
            **self._settings(variant, root, versions).to_environment(),
            **client,
            **self.temporary,
        }

    def _settings(self, variant: str, root: Path, compilers: str) -> Settings:
        return Settings(
            run=str(self.folder),
            cache=str(self.cache) if self.keeps else "",
            memory=self.budget.memory,
            tool=self.tool,
            deadline=self.budget.deadline or 0.0,
            variant=variant,
            root=str(root),
            compilers=compilers,
            jobs=self.budget.jobs if self.server else 0,
        )


@contextmanager
def opened(
    budget: Budget, cache: Path, environ: Mapping[str, str] = os.environ, *, keeps: bool = True
) -> Iterator[Run]:
    """A run in a folder of its own, which is gone afterwards.

    Objects are kept where both `keeps` and the environment say so. Without a jobserver, every
    ninja gets `--jobs` of its own.

    Raises:
        UsageError: `KBUILD_COMPILER_LAUNCHER` names a program that is not there, or
            `KBUILD_CACHE_SIZE` no amount.
    """
    tool = other_launcher(environ)
    tool = tool if keeps else ""
    keeps, limit = keeps and objectcache.is_enabled(environ), objectcache.limit_of(environ)
    with ExitStack() as stack:
        held = stack.enter_context(scratch("run"))
        folder = held.folder
        (folder / _TEMPORARY).mkdir()
        # MAKEFLAGS cannot hold a path with white space.
        can_serve = hasattr(os, "mkfifo") and len(str(folder).split()) == 1
        server = stack.enter_context(serve(folder, budget.jobs)) if can_serve else None
        yield Run(budget, folder, cache, server, tool, keeps, limit, held.lock)


def other_launcher(environ: Mapping[str, str]) -> str:
    """The compiler launcher that the user prefers to kbuild's cache; empty when there is none.

    Raises:
        UsageError: it is not there.
    """
    asked = environ.get(OTHER_LAUNCHER, "")
    if asked and shutil.which(asked) is None:
        raise UsageError(
            f"{OTHER_LAUNCHER}: there is no program `{asked}`",
            hint="install it, or unset the variable to use kbuild's own object cache",
        )
    return asked


def launcher_entries(languages: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """CMake cache entries that put the launcher before the compilers of these languages.

    The launcher needs `wait4` and `flock`: on Windows there are none, and no entries.
    """
    if sys.platform == "win32":
        return ()
    script = Path(__file__).with_name("launcher.py")
    command = f"{interpreter_name(Path(sys.executable))};-I;-S;{script}"
    wanted = [language for language in LAUNCHED if language in set(languages)]
    return tuple((f"CMAKE_{name}_COMPILER_LAUNCHER", f"{command};{name}") for name in wanted)
