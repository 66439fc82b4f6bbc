"""Folders that are written once and then only read.

Their content, their write permission, and the lock that keeps readers and the process that
removes entries apart.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbuild.system.files import sha256_of_file


def tree_digests(root: Path) -> dict[str, str]:
    """POSIX path -> `sha256:<hex>` of a file (`:x` when it runs), `link:<target>` of a link."""
    return {path.relative_to(root).as_posix(): _mark(path) for path in sorted(_walk(root))}


def tree_sizes(root: Path) -> tuple[int, int]:
    """Bytes that files and links take here, and those of hard links to files that lie elsewhere."""
    statuses = (path.lstat() for path in _walk(root))
    counts = Counter((status.st_ino, status.st_size, status.st_nlink) for status in statuses)
    # A file with more names than are found here has its space counted in another folder.
    own = sum(size for (_, size, links), here in counts.items() if here >= links)
    return own, sum(size for _, size, _ in counts) - own


def make_read_only(root: Path) -> None:
    """Take the write permission from every file and folder, the top one last."""
    for base, _, files in os.walk(root, topdown=False):
        for path in (*(Path(base, name) for name in files), Path(base)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)


def remove_tree(folder: Path) -> None:
    """Delete a read-only folder, if it is there."""
    for base, folders, _ in os.walk(folder):
        for path in (Path(base), *(Path(base, name) for name in folders)):
            if not path.is_symlink():
                path.chmod(0o755)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _walk(root: Path) -> Iterator[Path]:
    """Files, and links of any kind."""
    for base, folders, files in os.walk(root):
        for name in (*files, *folders):
            path = Path(base, name)
            if name in files or path.is_symlink():
                yield path


def _mark(path: Path) -> str:
    if path.is_symlink():
        return f"link:{path.readlink().as_posix()}"
    runs = ":x" if path.stat().st_mode & 0o100 else ""
    return f"sha256:{sha256_of_file(path)}{runs}"


_LOCK_FILE = ".use"


class FolderInUseError(Exception):
    """Somebody uses the folder."""


@contextmanager
def locked_tree(folder: Path, *, exclusive: bool = False) -> Iterator[None]:
    """Use the folder together with other readers, or exclusively to remove something.

    Raises:
        FolderInUseError: exclusive use is wanted, and another process uses the folder.
    """
    handle = None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK_FILE, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if handle is not None:
            _lock(handle, exclusive=exclusive)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int, *, exclusive: bool) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except BlockingIOError:
        raise FolderInUseError from None
    except OSError:  # a network file system without locks
        return
