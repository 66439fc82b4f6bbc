"""Temporary folders that are removed with the processes that use them, however those end.

    <TMPDIR>/kbuild-<user id>/         only this user can list and write it
        <purpose>-<random>.lock     locked by the folder's users; exists before and after it
        <purpose>-<random>/         the folder

After SIGKILL, a later run finds the lock free and removes the folder. Without `flock` (some
network file systems), the leftovers of killed runs stay.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kbuild.system import readonly_tree

_LOCK = ".lock"


@dataclass(frozen=True)
class TemporaryFolder:
    """A temporary folder in use."""

    folder: Path
    lock: tuple[int, ...] = ()
    """Descriptors for `pass_fds`: if kbuild is killed, later runs leave the folder alone while a
    process holds one."""


@contextmanager
def locked_temporary_folder(purpose: str, base: str = "") -> Iterator[TemporaryFolder]:
    """An empty folder, which is gone afterwards; so are those of earlier runs that were killed.

    Args:
        purpose: begins its name.
        base: the folder to create it in; `temporary_base()` when empty.

    Raises:
        OSError: the system has no place for it.
    """
    remove_abandoned_folders(base)
    held = _create_locked(_user_folder(base), purpose)
    if held is None:
        with tempfile.TemporaryDirectory(prefix=f"kbuild-{purpose}-", dir=base or None) as name:
            yield TemporaryFolder(Path(name))
        return
    folder, handle = held
    try:
        folder.mkdir(0o700)
        yield TemporaryFolder(folder, (handle,))
    finally:
        _remove(folder)
        os.close(handle)
        # Again: a process of a killed run may have ended since.
        remove_abandoned_folders(base)


@contextmanager
def temporary_folder(purpose: str, base: str = "") -> Iterator[Path]:
    """See `locked_temporary_folder`; for a folder that no process uses after kbuild ends."""
    with locked_temporary_folder(purpose, base) as held:
        yield held.folder


def temporary_base() -> str:
    """Folder of temporary files: TMPDIR or `/tmp` if it can be written to, else `gettempdir()`.

    `tempfile.gettempdir` writes a file to test a folder, which a kill at that moment leaves behind.

    Raises:
        FileNotFoundError: no folder can be written to.
    """
    if tempfile.tempdir is None:
        base = Path(os.environ.get("TMPDIR") or "/tmp").absolute()  # noqa: S108 - a base
        if base.is_dir() and os.access(base, os.W_OK | os.X_OK):
            return str(base)
    return tempfile.gettempdir()


def environment_with_tmpdir(folder: Path) -> dict[str, str]:
    """This process's environment for a program whose temporary files belong in `folder`."""
    return {**os.environ, "TMPDIR": str(folder)}


def remove_abandoned_folders(base: str = "") -> None:
    """Remove what killed runs left; what is in use, and what cannot be removed, stays."""
    try:
        user_folder = _user_folder(base)
        if not _is_own(user_folder.lstat()):
            return
        with os.scandir(user_folder) as entries:
            names = {entry.name.removesuffix(_LOCK) for entry in entries}
    except OSError:
        return
    for name in sorted(names):
        with suppress(OSError):
            _remove_if_abandoned(user_folder / name)


def _user_folder(base: str) -> Path:
    return Path(base or temporary_base(), f"kbuild-{os.getuid()}")


def _is_own(status: os.stat_result) -> bool:
    """True for a folder (not a link) in which no other user can create anything."""
    is_private = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return stat.S_ISDIR(status.st_mode) and is_private


def _create_locked(user_folder: Path, purpose: str) -> tuple[Path, int] | None:
    """Choose a free name in the user's folder, and lock it; the path, and the lock's descriptor.

    None when that folder is not the user's own.
    """
    while True:
        with suppress(FileExistsError):
            user_folder.mkdir(0o700)
        try:
            folder_fd = os.open(
                user_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except FileNotFoundError:  # another run was the last to leave
            continue
        except OSError:
            return None
        folder = user_folder / f"{purpose}-{os.urandom(4).hex()}"
        try:
            if not _is_own(os.fstat(folder_fd)):
                return None
            # Others cannot list it, but Nix's builders reach the folder in it that is for them.
            os.fchmod(folder_fd, 0o711)
            handle = _create_lock_file(_lock_of(folder).name, folder_fd)
        finally:
            os.close(folder_fd)
        if handle is not None:
            return folder, handle


def _create_lock_file(name: str, folder_fd: int) -> int | None:
    """A new lock file in the folder `folder_fd`, locked; None when another name has to be tried.

    `folder_fd` is a descriptor: the folder's path may lead into another user's folder by now.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o600, dir_fd=folder_fd)
    except (FileExistsError, FileNotFoundError):
        return None
    # Until it is locked, it looks abandoned: another run may have removed it.
    if _try_lock(handle) and os.fstat(handle).st_nlink:
        return handle
    os.close(handle)
    return None


def _try_lock(handle: int) -> bool:
    """Lock the file; False when somebody has locked it. Without locks, a new file is nobody's."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_if_abandoned(folder: Path) -> None:
    import fcntl

    try:
        handle = os.open(_lock_of(folder), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # removed by somebody who cleans up by age
        readonly_tree.remove_tree(folder)
        return
    try:
        # Not `_try_lock`: without locks this raises, and nothing that may be in use is removed.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            _remove(folder)
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    """Remove a folder whose lock is held; what cannot be removed is left to a later run."""
    with suppress(OSError):
        readonly_tree.remove_tree(folder)
        _lock_of(folder).unlink(missing_ok=True)
        folder.parent.rmdir()  # when it was the last


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")
