"""Identities of files, their hashes remembered by status so that headers are read once.

Torch has thousands of headers and every unit asks for most of them: a memory file per folder keeps
the answer. A file that changed a moment ago is not remembered, because its next change could leave
its time as it is.
"""

from __future__ import annotations

import os
import time

from kbuild.filestate import Look, digest, identify, look

_FORMAT = "kbuild-hashes 2"
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's time tells a later change apart."""
_COLUMNS = 6
"""The status, the hash, the name."""

Stamp = tuple[str, str, str, str]
"""Size, both times and inode."""


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
    """Identities of files at one moment, backed by a folder of memory files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, Look] = {}
        self._remembered: dict[str, dict[str, tuple[Stamp, str]]] = {}
        self._changed: set[str] = set()
        self._now = time.time_ns()

    def of(self, path: str) -> str | None:
        """The file's hash; None when it cannot be read."""
        identity = self.identity(path)
        return identity[4] if identity is not None else None

    def identity(self, path: str) -> Look:
        """The file's identity when it was first asked for; None when it cannot be read."""
        if path not in self._known:
            self._known[path] = self._ask(path)
        return self._known[path]

    def know(self, later: FileHashes, paths: list[str]) -> None:
        """Take over what another one says of those paths that were not asked for yet."""
        for path in paths:
            if path not in self._known:
                self._known[path] = later.identity(path)

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

    def _ask(self, path: str) -> Look:
        now = look(path)
        if now is None:
            return None
        folder, _, name = path.rpartition("/")
        memory = self._recall(folder)
        found = memory.get(name)
        if found is not None and found[0] == _stamp(now):
            return (*now[:4], found[1])
        identity = identify(path)
        if identity is not None and max(identity[1:3]) < self._now - _SETTLED:
            memory[name] = (_stamp(identity), identity[4])
            self._changed.add(folder)
        return identity

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
                if len(row) == _COLUMNS
            }
        return self._remembered[folder]

    def _memory(self, folder: str) -> str:
        name = digest(f"{_FORMAT}\0{folder}".encode("utf-8", "surrogateescape"))
        return f"{self._folder}/{name[:2]}/{name[2:]}"


def _stamp(identity: tuple[int, int, int, int, str]) -> Stamp:
    return (str(identity[0]), str(identity[1]), str(identity[2]), str(identity[3]))
