"""Writes files: one file atomically.

A set of generated files all or nothing, and with `durable` so that a power cut undoes nothing.

Unchanged files are not rewritten, so that ninja has nothing to do. A target that kbuild did not
write (by a manifest with digests) is never replaced unless forced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from kbuild.system.atomic import open_draft
from kbuild.system.errors import FileConflictError
from kbuild.system.os_errors import errors_about
from kbuild.system.untrusted import read_cache_file

if TYPE_CHECKING:
    from ctypes import CDLL


_FEW = 64
"""Largest number of files that are synced one by one, without waiting for other processes' data."""
_AT_CWD = -100
_EXCHANGE = 2
"""`RENAME_EXCHANGE` of Linux, and `RENAME_SWAP` of macOS."""
_UNABLE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)
"""Errors by which kernels, file systems and sandboxes refuse to exchange two files."""


def sync(path: Path) -> None:
    """Have a file's content, or a folder's names, on the disk.

    Raises:
        OSError: the disk took less than the system had accepted.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNABLE:  # some file systems sync no folders
            raise
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Have a folder and everything below it on the disk: see `sync`."""
    paths = [*_walk(root)]
    if len(paths) <= _FEW or not _sync_file_system(root):
        for path in paths:
            sync(path)


def _walk(root: Path) -> Iterator[Path]:
    """Files, then the folder that names them; no links."""
    for base, _, names in os.walk(root, topdown=False):
        yield from (path for name in names if not (path := Path(base, name)).is_symlink())
        yield Path(base)


def _sync_file_system(folder: Path) -> bool:
    """Sync the file system of a path; False if the system cannot do that."""
    if sys.platform != "linux":
        return False
    with suppress(AttributeError):
        function = _libc().syncfs
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return bool(function(handle) == 0)
        finally:
            os.close(handle)
    return False


def exchange_paths(path: Path, other: Path) -> bool:
    """Have two files or folders change places, so that nobody ever sees either place empty.

    Returns:
        False, and nothing has changed, where kernel, C library or file system cannot do it.

    Raises:
        OSError: it was refused.
    """
    import ctypes

    names = (os.fsencode(path), os.fsencode(other))
    try:
        if sys.platform == "linux":
            status = _libc().renameat2(_AT_CWD, names[0], _AT_CWD, names[1], _EXCHANGE)
        elif sys.platform == "darwin":
            status = _libc().renamex_np(*names, _EXCHANGE)
        else:
            return False
    except AttributeError:  # an old C library
        return False
    number = ctypes.get_errno()
    if status and number not in _UNABLE:
        raise OSError(number, os.strerror(number), str(path), None, str(other))
    return not status


def _libc() -> CDLL:
    from ctypes import CDLL

    return CDLL(None, use_errno=True)


MANIFEST = ".kbuild-files.json"


def replace_atomically(
    target: Path, data: bytes, *, mode: int = 0o644, durable: bool = False
) -> None:
    """Write `data` beside `target`, then rename: readers see the old bytes or the new ones.

    With `durable` that holds after a power cut too. Without, the file may be empty then: that is
    for what is looked at before it is believed, and can be made again.
    """
    with writing_atomically(target, mode=mode, durable=durable) as file:
        file.write(data)


@contextmanager
def writing_atomically(
    target: Path, *, mode: int = 0o644, durable: bool = False
) -> Iterator[BinaryIO]:
    """Write a file piece by piece, and replace it as `replace_atomically` does."""
    with errors_about(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = open_draft(str(target))
        draft = Path(name)
        with os.fdopen(handle, "wb") as file:
            try:
                yield file
                file.flush()
                # Drafts are opened for their owner alone.
                draft.chmod(mode)
                if durable:
                    sync(draft)
                # Renamed before the file is closed: closing ends the lock on the draft.
                draft.replace(target)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        # The new name is on the disk only when the folder is.
        if durable:
            sync(target.parent)


def link_file(source: Path, target: Path) -> None:
    """Link the file; copy it where the file system or the owner forbids hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def link_tree(source: Path, target: Path) -> None:
    """Fill a folder with the files and links of another one, see `link_file`."""
    for folder, inner, files in os.walk(source):
        # `os.walk` counts links to folders among the folders, and does not enter them.
        links = [name for name in inner if Path(folder, name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder, name)
            link_file(path, target / path.relative_to(source))


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hex digest of a file, which may be larger than memory.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class WriteReport:
    """The result of a write, as sorted POSIX paths relative to the target folder."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]


class FileSet:
    """Files by POSIX path relative to a target folder."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None) -> None:
        self._files: dict[str, bytes] = {}
        for path, content in (files or {}).items():
            self.add(path, content)

    def add(self, path: str, content: str | bytes) -> None:
        """Add one file.

        Raises:
            ValueError: the path is absolute, leaves the target or was added before.
        """
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != path:
            raise ValueError(f"`{path}` is not a plain relative path")
        if path in self._files:
            raise ValueError(f"`{path}` was added twice")
        self._files[path] = content.encode() if isinstance(content, str) else content

    def merge(self, other: FileSet) -> FileSet:
        """A new set with the files of both; a path in both is an error."""
        merged = FileSet(self._files)
        for path, data in other.items():
            merged.add(path, data)
        return merged

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Paths and contents in path order."""
        return iter(sorted(self._files.items()))

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __getitem__(self, path: str) -> bytes:
        return self._files[path]

    def __len__(self) -> int:
        return len(self._files)

    @property
    def digest(self) -> str:
        """SHA-256 over paths and contents in path order."""
        hasher = hashlib.sha256()
        for path, data in self.items():
            # The length tells where a content ends and the next path begins.
            hasher.update(f"{path}\0{len(data)}\0".encode())
            hasher.update(data)
        return hasher.hexdigest()

    def write(self, root: Path, *, force: bool = False, manifest: bool = True) -> WriteReport:
        """Write what differs below `root`.

        With `manifest`, a file that kbuild did not write, or that was edited since, is a conflict
        unless `force`; nothing is written before all conflicts are known. Files of an earlier
        write that are no longer part of the set are removed when unedited. When it fails, files
        and folders that were not there before are gone again.

        Raises:
            FileConflictError: with every conflicting path.
            OSError: a file cannot be written.
        """
        known = read_manifest(root) if manifest else {}
        self._refuse_conflicts(root, known, force=force or not manifest)
        # A link in place of a folder would have files written outside of the project.
        self._refuse_outside(root)
        written, unchanged = [], []
        with _all_or_nothing(root) as created:
            for path, data in self.items():
                target = root / path
                if _has_content(target, data):
                    unchanged.append(path)
                    continue
                if not target.exists():
                    created.append(target)
                replace_atomically(target, data)
                written.append(path)
            if manifest:
                # The manifest is written last: what an interrupted write left is still known to be
                # kbuild's.
                remove_known(root, {path: known[path] for path in known if path not in self._files})
                write_manifest(root, {path: sha256(data) for path, data in self.items()})
        return WriteReport(tuple(written), tuple(unchanged))

    def _refuse_outside(self, root: Path) -> None:
        real = os.path.realpath(root)
        for folder in sorted({(root / path).parent for path in self._files}):
            if not Path(os.path.realpath(folder)).is_relative_to(real):
                raise FileConflictError(
                    f"`{folder}` is a link that leads out of `{root}`: nothing is written there",
                    hint="put a folder in place of the link",
                )

    def _refuse_conflicts(self, root: Path, known: Mapping[str, str], *, force: bool) -> None:
        conflicts = [
            path
            for path, data in self.items()
            if _is_in_the_way(root / path, (sha256(data), known.get(path)), force=force)
        ]
        if conflicts:
            listed = "".join(f"\n    {path}" for path in conflicts)
            raise FileConflictError(
                f"files that kbuild did not write, or that were edited, are in the way:{listed}",
                hint="move them away, or pass --force to replace them",
            )


def _has_content(file: Path, data: bytes) -> bool:
    """True for a file with just these bytes; a file of another size is not read."""
    return file.is_file() and file.stat().st_size == len(data) and file.read_bytes() == data


@contextmanager
def _all_or_nothing(root: Path) -> Iterator[list[Path]]:
    """On failure, remove the files that were added to the list, and folders that become empty."""
    is_new = not root.exists()
    created: list[Path] = []
    try:
        yield created
    except BaseException:
        for path in created:
            with suppress(OSError):  # what failed is told, not that it cannot be undone
                path.unlink()
            with suppress(OSError):
                _prune_empty(path.parent, root.parent if is_new else root)
        raise


def _is_in_the_way(path: Path, ours: tuple[str | None, ...], *, force: bool) -> bool:
    if path.is_file():
        return not force and _digest_of(path) not in ours
    return path.exists() or (path.is_symlink() and not force)


def _digest_of(path: Path) -> str | None:
    return sha256_of_file(path) if path.is_file() else None


def read_manifest(root: Path) -> dict[str, str]:
    """Paths that kbuild wrote below `root`, with the digest that each had."""
    return read_cache_file(root / MANIFEST, _known_files) or {}


def _known_files(document: Mapping[str, Any]) -> dict[str, str]:
    files: Mapping[str, str] = document["files"]
    inside = (path for path in files if is_inside(path))
    return {path: str(files[path]) for path in inside}


def is_inside(path: str) -> bool:
    """True for a relative path that leads nowhere else."""
    pure = PurePosixPath(path)
    return bool(pure.parts) and not pure.is_absolute() and ".." not in pure.parts


def write_manifest(root: Path, files: Mapping[str, str]) -> None:
    """Remember what was written; the manifest goes when nothing is left to remember."""
    target = root / MANIFEST
    if not files:
        target.unlink(missing_ok=True)
        return
    data = (json.dumps({"files": dict(sorted(files.items()))}, indent=1) + "\n").encode()
    if not target.is_file() or target.read_bytes() != data:
        replace_atomically(target, data)


def remove_known(root: Path, known: Mapping[str, str], *, force: bool = False) -> tuple[str, ...]:
    """Delete files that still have the digest kbuild wrote (all with `force`); emptied folders too.

    Returns the removed paths. Edited files stay.
    """
    removed = []
    for path, digest in sorted(known.items()):
        target = root / path
        if target.is_file() and (force or _digest_of(target) == digest):
            target.unlink()
            removed.append(path)
            _prune_empty(target.parent, root)
    return tuple(removed)


def _prune_empty(folder: Path, root: Path) -> None:
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
