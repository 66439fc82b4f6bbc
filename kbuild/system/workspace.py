"""The folders of one variant's build.

`.kbuild/<variant>/` in the project, and the lock on them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbuild.system.errors import IncompleteError
from kbuild.system.files import replace_atomically
from kbuild.system.os_errors import errors_about

WORKSPACE_FOLDER = ".kbuild"
_PAUSE = 0.1
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Made by kbuild; safe to delete. See https://bford.info/cachedir/\n"
)


@dataclass(frozen=True)
class Workspace:
    """The folders of one variant's build."""

    project: Path
    variant: str

    @property
    def root(self) -> Path:
        """`.kbuild/<variant>`."""
        return self.project / WORKSPACE_FOLDER / self.variant

    @property
    def source(self) -> Path:
        """The generated CMake project."""
        return self.root / "project"

    @property
    def tree(self) -> Path:
        """CMake's build tree."""
        return self.root / "tree"

    @property
    def stage(self) -> Path:
        """The variant directory before it is checked and moved into place."""
        return self.root / "stage" / self.variant

    @property
    def logs(self) -> Path:
        """Logs of every process of the build."""
        return self.root / "log"

    @staticmethod
    def report_of(project: Path) -> Path:
        """Folder of the report on the project's last build, all variants together."""
        return project / WORKSPACE_FOLDER / "report"

    def prepare(self) -> None:
        """Make the folders, tagged so that backups leave them out."""
        with errors_about(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        top = self.project / WORKSPACE_FOLDER
        # The folder's own `.gitignore` keeps it out of commits, whatever the project's says.
        for name, text in (("CACHEDIR.TAG", _TAG), (".gitignore", "*\n")):
            if not (top / name).is_file():
                replace_atomically(top / name, text.encode())

    @contextmanager
    def locked(
        self,
        is_ending: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda _: None,
    ) -> Iterator[tuple[int, ...]]:
        """Lock the workspace; yields the descriptors by which a child process holds the lock, too.

        The lock dies with the last process that holds it. A kbuild that is killed cannot end its
        compilers: as long as one of them still writes to the tree, nobody else does. `say` gets
        whom this process waits for.

        Raises:
            IncompleteError: `is_ending()` came before the lock.
        """
        self.prepare()
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            is_waiting = False
            # Polled, because a blocking `flock` could not be given up when the time is over.
            while not _try_lock(handle):
                if is_ending():
                    raise IncompleteError("not started: another build of this variant is running")
                if not is_waiting:
                    say(f"waiting for another kbuild{_holder_text(handle)}")
                    is_waiting = True
                time.sleep(_PAUSE)
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield (handle,)
        finally:
            os.close(handle)


def _holder_text(handle: int) -> str:
    """The process that has the lock; empty as long as it has not written its number."""
    holder = os.pread(handle, 20, 0).decode("ascii", "replace")
    return f" (pid {holder})" if holder.isdigit() else ""


def lock_file(path: Path) -> int | None:
    """A descriptor that holds the lock of a file until it is closed; None when somebody has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _try_lock(handle):
        return handle
    os.close(handle)
    return None


def _try_lock(handle: int) -> bool:
    """Take the lock if nobody has it."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
