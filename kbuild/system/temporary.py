"""Temporary folders that are removed with the processes that use them, however those end.

    <TMPDIR>/kbuild-<user id>/         only this user can list and write it
        <purpose>-<random>.lock     locked by the folder's users; exists before and after it
        <purpose>-<random>/         the folder

After SIGKILL, a later run finds the lock free and removes the folder. Without `flock` (Windows,
some network file systems), the leftovers of killed runs stay.
"""

from __future__ import annotations

import os
import stat
import sys
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
    """Descriptors of the lock: the folder outlives kbuild with a process that inherits them."""


@contextmanager
def locked_temporary_folder(purpose: str, base: str = "") -> Iterator[TemporaryFolder]:
    """An empty folder, which is gone afterwards; so are those of earlier runs that were killed.

    Args:
        purpose: begins its name.
        base: where it is instead of `temporary_base()`.

    Raises:
        OSError: the system has no place for it.
    """
    remove_abandoned_folders(base)
    held = None if sys.platform == "win32" else _create_locked(_user_folder(base), purpose)
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
        remove_abandoned_folders(base)  # what an orphan still had in use at the beginning


@contextmanager
def temporary_folder(purpose: str, base: str = "") -> Iterator[Path]:
    """See `locked_temporary_folder`; for folders that no process uses after kbuild ends."""
    with locked_temporary_folder(purpose, base) as held:
        yield held.folder


def temporary_base() -> str:
    """Folder of temporary files, as `tempfile.gettempdir` has it, but without writing there to try.

    The file that it writes for that would stay in a process that is killed meanwhile.

    Raises:
        FileNotFoundError: no folder can be written to.
    """
    if tempfile.tempdir is None:
        place = Path(os.environ.get("TMPDIR") or "/tmp").absolute()  # noqa: S108 - a base
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            return str(place)
    return tempfile.gettempdir()


def environment_with_tmpdir(folder: Path) -> dict[str, str]:
    """This process's environment for a program whose temporary files belong into `folder`."""
    return {**os.environ, "TMPDIR": str(folder)}


def remove_abandoned_folders(base: str = "") -> None:
    """Remove what killed runs left; what is in use, and what cannot be removed, stays."""
    if sys.platform == "win32":
        return
    try:
        home = _user_folder(base)
        if not _is_own(home.lstat()):
            return
        with os.scandir(home) as entries:
            names = {entry.name.removesuffix(_LOCK) for entry in entries}
    except OSError:
        return
    for name in sorted(names):
        with suppress(OSError):
            _remove_if_abandoned(home / name)


def _user_folder(base: str) -> Path:
    return Path(base or temporary_base(), f"kbuild-{os.getuid()}")


def _is_own(home: os.stat_result) -> bool:
    """True for a folder (not a link) in which no other user can create anything."""
    is_private = home.st_uid == os.getuid() and not home.st_mode & 0o022
    return stat.S_ISDIR(home.st_mode) and is_private


def _create_locked(home: Path, purpose: str) -> tuple[Path, int] | None:
    """Choose a free name in the user's folder, and lock it; the name, and the lock's descriptor.

    None when that folder is not the user's own.
    """
    while True:
        with suppress(FileExistsError):
            home.mkdir(0o700)
        try:
            place = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:  # another run was the last to leave
            continue
        except OSError:
            return None
        folder = home / f"{purpose}-{os.urandom(4).hex()}"
        try:
            if not _is_own(os.fstat(place)):
                return None
            os.fchmod(place, 0o711)  # builders of Nix reach a folder in it that is opened to them
            handle = _create_lock_file(_lock_of(folder).name, place)
        finally:
            os.close(place)
        if handle is not None:
            return folder, handle


def _create_lock_file(name: str, place: int) -> int | None:
    """A new lock file in the folder `place`, locked; None when another name has to be tried.

    It is not made by its path, which may lead into another user's folder by now.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o600, dir_fd=place)
    except (FileExistsError, FileNotFoundError):
        return None
    # Until it is locked, it looks abandoned: another run may have removed it.
    if _try_lock(handle) and os.fstat(handle).st_nlink:
        return handle
    os.close(handle)
    return None


def _try_lock(handle: int) -> bool:
    """Lock the file; False when somebody has it. Where nothing can be locked, nobody has."""
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
