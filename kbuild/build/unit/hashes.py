"""Content hashes of files, remembered by size, times and inode so that headers are read once.

Torch has thousands of headers and every unit asks for most of them: a memory file per folder keeps
the answer. A file that changed a moment ago is not remembered, because its next change could leave
its time as it is.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import blake2b
else:
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL first
    except ImportError:
        from hashlib import blake2b

_SIZE = 16
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's time tells a later change apart."""

Stamp = tuple[str, str, str, str]
"""Size, both times and inode."""


def digest(data: bytes) -> str:
    """Hex digest of some bytes."""
    return blake2b(data, digest_size=_SIZE).hexdigest()


def read(path: str) -> bytes:
    """A whole file."""
    with open(path, "rb") as file:
        return file.read()


def write(target: str, data: bytes) -> None:
    """Write beside `target`, then rename: readers see all or nothing."""
    fresh = f"{target}.{os.getpid()}.new"
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(fresh, target)
    except BaseException:
        if os.path.exists(fresh):
            os.unlink(fresh)
        raise


class FileHashes:
    """Hashes of files, backed by a folder of memory files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, str | None] = {}
        self._remembered: dict[str, dict[str, tuple[Stamp, str]]] = {}
        self._changed: set[str] = set()
        self._now = time.time_ns()

    def of(self, path: str) -> str | None:
        """The file's hash; None when it cannot be read."""
        if path not in self._known:
            try:
                self._known[path] = self._ask(path)
            except OSError:
                self._known[path] = None
        return self._known[path]

    def save(self) -> None:
        """Keep what was learned."""
        for folder in self._changed:
            target = self._memory(folder)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            lines = [
                "\t".join((*stamp, known, name))
                for name, (stamp, known) in self._remembered[folder].items()
            ]
            write(target, "\n".join(lines).encode("utf-8", "surrogateescape"))
        self._changed.clear()

    def _ask(self, path: str) -> str:
        status = os.stat(path)
        facts = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        stamp = (str(facts[0]), str(facts[1]), str(facts[2]), str(facts[3]))
        folder, _, name = path.rpartition("/")
        memory = self._recall(folder)
        found = memory.get(name)
        if found is not None and found[0] == stamp:
            return found[1]
        known = digest(read(path))
        if max(facts[1], facts[2]) < self._now - _SETTLED:
            memory[name] = (stamp, known)
            self._changed.add(folder)
        return known

    def _recall(self, folder: str) -> dict[str, tuple[Stamp, str]]:
        if folder not in self._remembered:
            try:
                text = read(self._memory(folder)).decode("utf-8", "surrogateescape")
            except OSError:
                text = ""
            rows = (line.split("\t") for line in text.split("\n"))
            self._remembered[folder] = {
                row[5]: ((row[0], row[1], row[2], row[3]), row[4])
                for row in rows
                if len(row) == 6  # noqa: PLR2004 - the stamp, the hash, the name
            }
        return self._remembered[folder]

    def _memory(self, folder: str) -> str:
        name = digest(folder.encode("utf-8", "surrogateescape"))
        return f"{self._folder}/{name[:2]}/{name[2:]}"
