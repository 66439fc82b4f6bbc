"""Files that appear and disappear in one step.

Compiler launchers import this once per translation unit: it imports nothing that takes time.
"""

from __future__ import annotations

import _thread
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAFT_SUFFIX = ".draft"
_MAX_NAME_LENGTH = 100
"""Number of characters of a target's name in its draft's name, which must not be too long."""

_REMOVALS = 8
"""Number of attempts to remove a folder: writers that have opened it may add files meanwhile."""


def replace_file(target: str, data: bytes) -> None:
    """Write beside `target`, then rename: readers see all or nothing.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    handle, draft = open_draft(target, 0o666)
    with open(handle, "wb") as file:
        try:
            file.write(data)
            file.flush()
            # Before the file is closed: that ends the lock, and another writer may take the draft.
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise


def open_draft(target: str, mode: int = 0o600) -> tuple[int, str]:
    """Open an empty file beside `target` that no other process writes to.

    It is always the same while nobody else has it, so that the next writer uses up what a killed
    one left.

    Raises:
        OSError: it cannot be written.
    """
    folder, name = os.path.split(target)
    draft = f"{folder or os.curdir}/.{name[:_MAX_NAME_LENGTH]}{DRAFT_SUFFIX}"
    handle = _open_exclusively(draft, mode)
    if handle is None:
        # Another writer has the usual name: this one needs a name of its own.
        draft = f"{draft[: -len(DRAFT_SUFFIX)]}.{_unique()}{DRAFT_SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        handle = os.open(draft, flags | os.O_NOFOLLOW, mode)
    return handle, draft


def _open_exclusively(draft: str, mode: int) -> int | None:
    """The file, locked and empty; None when somebody else has it, or it cannot be locked."""
    import fcntl

    try:
        # O_NOFOLLOW: a link in this place would have a file elsewhere emptied.
        handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.lstat(draft)):  # else it is the target by now
            # Emptied only under the lock, and not by O_TRUNC: it may have been another writer's.
            os.ftruncate(handle, 0)
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def draft_path(target: str) -> str:
    """A path beside `target` that no other thread uses."""
    return f"{target}.{_unique()}{DRAFT_SUFFIX}"


def _unique() -> str:
    return f"{os.getpid()}-{_thread.get_ident()}"


def files_below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files below a folder with their status; other processes remove files meanwhile."""
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                children = list(entries)
        except OSError:
            continue
        for child in children:
            try:
                if child.is_dir(follow_symlinks=False):
                    pending.append(child.path)
                else:
                    yield child.path, child.stat(follow_symlinks=False)
            except OSError:
                continue


def remove_path(path: str) -> None:
    """Remove a file or folder; other processes keep what they have open."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:  # it is a folder, or cannot be removed
        _remove_folder(path)


def _remove_folder(path: str) -> None:
    import shutil

    # Renamed first, so that no reader sees a folder with some of its files.
    draft = path if path.endswith(DRAFT_SUFFIX) else draft_path(path)
    if draft != path:
        # What a process of the same number left, as in containers, would not be replaced.
        shutil.rmtree(draft, ignore_errors=True)
    try:
        os.rename(path, draft)  # all of it in one step
    except OSError:  # another process removes it, or it cannot be removed
        return
    for _ in range(_REMOVALS):
        shutil.rmtree(draft, ignore_errors=True)
        if not os.path.lexists(draft):
            break
