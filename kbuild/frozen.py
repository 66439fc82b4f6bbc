"""Folders that are made once and then only read: their content, and their write permission."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kbuild.fileset import sha256_of_file


def contents(root: Path) -> dict[str, str]:
    """POSIX path -> `sha256:<hex>` of a file (`:x` when it runs), `link:<target>` of a link."""
    return {path.relative_to(root).as_posix(): _mark(path) for path in sorted(_walk(root))}


def sizes(root: Path) -> tuple[int, int]:
    """Bytes that files and links take here, and those of hard links to files that lie elsewhere."""
    found = Counter((status.st_ino, status.st_size, status.st_nlink) for status in _statuses(root))
    own = sum(size for (_, size, links), here in found.items() if here >= links)
    return own, sum(size for _, size, _ in found) - own


def _statuses(root: Path) -> Iterator[os.stat_result]:
    yield from (path.lstat() for path in _walk(root))


def freeze(root: Path) -> None:
    """Take the write permission from every file and folder, the top one last."""
    for base, _, files in os.walk(root, topdown=False):
        for path in (*(Path(base, name) for name in files), Path(base)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)


def remove(folder: Path) -> None:
    """Delete a frozen folder; one that is not there is fine."""
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
