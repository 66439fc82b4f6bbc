"""A mirror in a folder of this machine, or of a mounted file server."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kbuild.errors import FileConflictError, HubError
from kbuild.hub.repository import AccessDeniedError, NotFoundError
from kbuild.mirror.store import MAX_SMALL_FILE, require_small
from kbuild.runtime.files import sync

_BLOCK = 1 << 20
_READABLE = 0o444
_PLAIN = 0o644
_TEMPORARY = ".kbuild-"
_WORKERS = 4


class FolderStore:
    """See `MirrorStore`. Files come into place by renames, copies inside are hard links."""

    workers = _WORKERS
    verifies_copies = True

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def shown(self) -> str:
        """See `MirrorStore.shown`."""
        return str(self.root)

    def blocks(self, path: str) -> Iterator[bytes]:
        """See `MirrorStore.blocks`."""
        with _translated_errors(self.root / path), _open_file(self.root / path) as file:
            while block := file.read(_BLOCK):
                yield block

    def read(self, path: str) -> bytes:
        """See `MirrorStore.read`."""
        return self.fetch(path, MAX_SMALL_FILE)

    def fetch(self, path: str, limit: int) -> bytes:
        """See `MirrorStore.fetch`."""
        with _translated_errors(self.root / path), _open_file(self.root / path) as file:
            return require_small(file.read(limit + 1), str(self.root / path), limit)

    def write(self, path: str, source: Path | bytes) -> None:
        """See `MirrorStore.write`."""
        target = self.root / path
        with _translated_errors(target), _temporary_beside(target) as fresh:
            if isinstance(source, bytes):
                fresh.write_bytes(source)
            else:
                shutil.copyfile(source, fresh)
            mode = _PLAIN if isinstance(source, bytes) else source.stat().st_mode & 0o777
            fresh.chmod(mode | _READABLE)
            sync(fresh)
            fresh.replace(target)
            sync(target.parent)

    def duplicate(self, old: str, new: str) -> None:
        """See `MirrorStore.duplicate`."""
        source, target = self.root / old, self.root / new
        with _translated_errors(source), _temporary_beside(target) as fresh:
            fresh.unlink()
            try:
                os.link(source, fresh)
            except FileNotFoundError:
                raise
            except OSError:  # a file system without hard links
                shutil.copy2(source, fresh)
                sync(fresh)
            fresh.replace(target)

    def names(self, folder: str) -> tuple[str, ...]:
        """See `MirrorStore.names`."""
        with _translated_errors(self.root / folder):
            try:
                return tuple(sorted(path.name for path in (self.root / folder).iterdir()))
            except (FileNotFoundError, NotADirectoryError):
                return ()

    def sizes(self, folder: str) -> dict[str, int]:
        """See `MirrorStore.sizes`. Links to folders are not followed, but listed."""
        top = self.root / folder
        entries = (
            path
            for base, folders, names in os.walk(top)
            for path in (Path(base, name) for name in (*folders, *names))
            if path.is_symlink() or not path.is_dir()
        )
        with _translated_errors(top):
            return {
                path.relative_to(top).as_posix(): path.lstat().st_size
                for path in entries
                if not path.name.startswith(_TEMPORARY)
            }

    def remove(self, paths: Iterable[str]) -> None:
        """See `MirrorStore.remove`."""
        for path in paths:
            target = self.root / path
            with _translated_errors(target):
                target.unlink(missing_ok=True)
            for parent in target.parents:
                if parent == self.root or not _remove_if_empty(parent):
                    break

    def point(self, link: str, target: str) -> bool:
        """See `MirrorStore.point`.

        Raises:
            FileConflictError: something is there that is not a link.
        """
        place = self.root / link
        if place.exists() and not place.is_symlink():
            hint = "move it away: a mirror has a link to the version's files there"
            raise FileConflictError(f"`{place}` was not made by kbuild", hint=hint)
        with _translated_errors(place), _temporary_beside(place) as fresh:
            fresh.unlink()
            try:
                fresh.symlink_to(target, target_is_directory=True)
            except (OSError, NotImplementedError):
                return False
            fresh.replace(place)
            sync(place.parent)
        return True

    def target(self, link: str) -> str | None:
        """See `MirrorStore.target`."""
        place = self.root / link
        return place.readlink().as_posix() if place.is_symlink() else None

    @contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """See `MirrorStore.alone`: a lock that ends with the process."""
        from filelock import FileLock

        place = self.root / path
        with _translated_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(place)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


@contextmanager
def _temporary_beside(target: Path) -> Iterator[Path]:
    """An empty file in the same folder, gone afterwards unless it was moved."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=_TEMPORARY)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _open_file(path: Path) -> IO[bytes]:
    """The file, opened: a pipe in its place would have nothing to say for ever."""
    if path.exists() and not path.is_file():
        raise HubError(f"`{path}` is not a file", hint="delete it, and publish again")
    return path.open("rb")


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into `HubError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"`{path}` does not exist") from error
    except PermissionError as error:
        raise AccessDeniedError(f"`{error.filename or path}`: permission denied") from error
    except OSError as error:
        raise HubError(f"`{error.filename or path}`: {error.strerror or error}") from error
