"""What one object is made from: identified before its compiler starts, and again after it ended.

An input that moved meanwhile leaves open what the compiler read: its object is neither kept nor
linked. Beside an object lies what it was made from, as that was then:

    <object>.inputs    the object's own identity, then one line per input, or per place where a
                       header was looked for and there was none

A header is known before only when an earlier compilation named it. For one that is not, its times
and those of the folders above must be older than the start.
"""

from __future__ import annotations

import os
import stat

from kbuild.build.unit import depfile, hashes
from kbuild.build.unit.key import programs
from kbuild.filestate import Look, clock, has_moved, identify, is_young, lasting, look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbuild.build.unit.command import Command
    from kbuild.build.unit.settings import Settings

SUFFIX = ".inputs"
_FORMAT = "kbuild-inputs 1"
_ABSENT = "-"
_FIRST, _LATER, _ELSEWHERE = "first", "later", "elsewhere"
"""Where a header is: in the first searched folder that has its relative path, in a later one (it
was found beside its includer), or in none (the compiler's own)."""


class Search:
    """Where a command's headers are found, at one moment."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders
        self._exists: dict[str, bool] = {}
        self.hidden: dict[str, str] = {}
        """Header -> a file of the same relative path in an earlier folder."""

    @property
    def absent(self) -> list[str]:
        """Where a header of that name would have been found instead."""
        return [path for path, exists in self._exists.items() if not exists]

    def find(self, path: str) -> tuple[str, str]:
        """Where a search meets the header, and the path that is relative to its folder.

        The same in two builds: what was included by that relative path is this header in both.
        """
        owner = max((f for f in self._folders if path.startswith(f"{f}/")), key=len, default="")
        if not owner:
            return _ELSEWHERE, ""
        relative = path[len(owner) + 1 :]
        top = relative.partition("/")[0]
        for folder in self._folders[: self._folders.index(owner)]:
            if self._has(f"{folder}/{top}") and self._has(f"{folder}/{relative}"):
                self.hidden[path] = f"{folder}/{relative}"
                return _LATER, relative
        return _FIRST, relative

    def _has(self, path: str) -> bool:
        if path not in self._exists:
            self._exists[path] = os.path.exists(path)
        return self._exists[path]


class Inputs:
    """The files of one unit, as they are from now on."""

    def __init__(self, settings: Settings, command: Command, environ: Mapping[str, str]) -> None:
        """Nothing of an earlier moment is used: create one before each look-up and each start."""
        self._since = clock()
        self._memory = f"{settings.cache or settings.run}/hashes"
        self._root = settings.root
        self._command = command
        self.files = hashes.FileHashes(self._memory)
        """Their identities."""
        self.search = Search(command.folders)
        self.programs = programs(command, environ)
        """The compilers."""
        self._always = [command.absolute(command.source), *self.programs]
        self._expected: dict[str, tuple[str, str]] = {}
        self._folders: dict[str, bool] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """Identify what the compiler is going to read, as far as that is known."""
        for path in (*self._always, *paths):
            self.files.identity(path)
            self._expected[path] = self.search.find(path)

    def read(self) -> list[str]:
        """What the compiler says that it read."""
        try:
            text = hashes.read(self._command.absolute(self._command.depfile))
        except OSError:  # it writes no depfile
            return []
        paths = depfile.quick(text.decode("utf-8", "surrogateescape"))
        return list(dict.fromkeys(map(self._command.absolute, paths)))

    def changed(self, paths: Iterable[str]) -> str:
        """The first input that may not be what the compiler read; empty when there is none.

        Afterwards, `files` and `search` know them all.

        Args:
            paths: what the compiler says that it read; none when it failed.
        """
        since, now = clock(), hashes.FileHashes(self._memory)
        search = Search(self._command.folders)
        read = list(paths)
        for path in dict.fromkeys((*self._always, *(read or self._expected))):
            if path not in self._expected:
                is_changed = self._is_new(path, now, search)
            elif search.find(path) != self._expected[path]:
                is_changed = True
            else:
                is_changed = has_moved(path, self.files.identity(path), self._since)
            if is_changed:
                return str(path)
        self._since = since
        self.files.know(now, read)
        self.search = search
        return ""

    def record(self, target: str, paths: Iterable[str]) -> None:
        """Write beside the object `target` what it was made from."""
        read = {path: self.files.identity(path) for path in (*self._always, *paths)}
        rows = [_row(path, lasting(then, self._since)) for path, then in read.items()]
        rows += [_row(path, None) for path in self.search.absent]
        text = "\n".join((_FORMAT, _row(target, identify(target)), *rows))
        hashes.write(f"{target}{SUFFIX}", text.encode("utf-8", "surrogateescape"))

    def _is_new(self, path: str, now: hashes.FileHashes, search: Search) -> bool:
        """Whether a header that was not expected may have come after the start."""
        search.find(path)
        hidden = search.hidden.get(path, path)
        if any(is_young(one, self._since) for one in (now.identity(path), look(hidden))):
            return True
        return self._is_below_new(path)

    def _is_below_new(self, path: str) -> bool:
        """Whether the path leads through a link or a renamed folder of the project that is young.

        An entry that comes or goes sets both times of a folder; its own new name only one.
        """
        if not self._root or not path.startswith(f"{self._root}/"):
            return False
        if path not in self._folders:
            try:
                status = os.lstat(path)
            except OSError:  # it has gone
                return True
            is_link = stat.S_ISLNK(status.st_mode)
            is_named = stat.S_ISDIR(status.st_mode) and status.st_ctime_ns != status.st_mtime_ns
            moment: Look = (0, status.st_ctime_ns, status.st_ctime_ns, 0, "")
            is_new = (is_link or is_named) and is_young(moment, self._since)
            self._folders[path] = is_new or self._is_below_new(os.path.dirname(path))
        return self._folders[path]


def recorded(target: str) -> dict[str, Look]:
    """What the object `target` was made from, itself first; None for what was not there.

    Raises:
        OSError: there is no record.
        ValueError: it cannot be read.
    """
    text = hashes.read(f"{target}{SUFFIX}").decode("utf-8", "surrogateescape")
    first, *rows = text.split("\n")
    if first != _FORMAT:
        raise ValueError(f"{target}{SUFFIX} is no record")
    found: dict[str, Look] = {}
    for row in rows:
        size, mtime, ctime, inode, content, path = row.split("\t", 5)
        known = (int(size), int(mtime), int(ctime), int(inode), content)
        found[path] = None if content == _ABSENT else known
    return found


def _row(path: str, identity: Look) -> str:
    return "\t".join(map(str, (*(identity or (0, 0, 0, 0, _ABSENT)), path)))
