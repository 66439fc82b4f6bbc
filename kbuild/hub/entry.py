"""A file to upload: where it goes, and the hashes by which the Hub knows its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kbuild.hub.values import RemoteFile

_BLOCK = 1 << 20
_THREADS = 4


@dataclass(frozen=True)
class Entry:
    """A file as it should be in the repository."""

    path: str
    """POSIX path in the repository."""
    source: Path | bytes
    """The file, or its content."""
    size: int
    sha256: str
    """In hex: what LFS names the content by."""
    blob: str
    """What git names the content by."""

    def is_in(self, remote: RemoteFile | None) -> bool:
        """True when the repository's file has the same content."""
        if remote is None:
            return False
        if remote.sha256 is not None:
            return remote.sha256 == self.sha256
        return remote.blob == self.blob


def entry_of(path: str, source: Path | bytes) -> Entry:
    """Read a file once, and hash it both ways.

    Raises:
        OSError: the file cannot be read.
    """
    if isinstance(source, bytes):
        blob = hashlib.sha1(_header(len(source)) + source, usedforsecurity=False)
        return Entry(
            path, source, len(source), hashlib.sha256(source).hexdigest(), blob.hexdigest()
        )
    size = source.stat().st_size
    blob, whole = hashlib.sha1(_header(size), usedforsecurity=False), hashlib.sha256()
    with source.open("rb") as file:
        while block := file.read(_BLOCK):
            blob.update(block)
            whole.update(block)
    return Entry(path, source, size, whole.hexdigest(), blob.hexdigest())


def entries_of(files: Iterable[tuple[str, Path]]) -> tuple[Entry, ...]:
    """Several files, hashed at the same time; in the order in which they were given."""
    wanted = tuple(files)
    if not wanted:
        return ()
    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(lambda pair: entry_of(*pair), wanted))


def _header(size: int) -> bytes:
    return f"blob {size}\0".encode()
