"""The inputs of one object, the hashes of files, and Make's dependency files.

Inputs are identified before the compiler starts, and verified after it ended.

    <object>.inputs    the object's own identity, then one line per input, or per place where a
                       header was looked for and there was none
"""

from __future__ import annotations

import os
import stat
import time

from kbuild.build.unit.command import compiler_programs
from kbuild.system.atomic import replace_file
from kbuild.system.cache import FILE_HASHES, Cache
from kbuild.system.file_state import (
    FileState,
    file_clock,
    has_changed_since,
    hash_bytes,
    identify,
    may_have_changed_since,
    stat_state,
    storable_state,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbuild.build.unit.command import CompileCommand
    from kbuild.system.unit_settings import LauncherSettings


_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's time changes with any further change."""
_HASH_COLUMNS = 6
"""The status, the hash, the name."""

Stamp = tuple[str, str, str, str]
"""Size, both times and inode."""


def read_file(path: str) -> bytes:
    """A whole file."""
    with open(path, "rb") as file:
        return file.read()


class FileHashes:
    """Identities of files at one moment; the hashes of old files are cached, by folder."""

    def __init__(self, folder: str) -> None:
        """`folder` is that of the cache."""
        self._cache = Cache(folder, FILE_HASHES)
        self._known: dict[str, FileState] = {}
        self._remembered: dict[str, dict[str, tuple[Stamp, str]]] = {}
        self._changed: set[str] = set()
        self._now = time.time_ns()

    def of(self, path: str) -> str | None:
        """The file's hash; None when it cannot be read."""
        identity = self.identity(path)
        return identity[4] if identity is not None else None

    def identity(self, path: str) -> FileState:
        """The file's identity when it was first asked for; None when it cannot be read."""
        if path not in self._known:
            self._known[path] = self._ask(path)
        return self._known[path]

    def know(self, later: FileHashes, paths: list[str]) -> None:
        """Take over another's identities of paths that were not asked for yet."""
        for path in paths:
            if path not in self._known:
                self._known[path] = later.identity(path)

    def save(self) -> None:
        """Store new hashes in the cache."""
        for folder in self._changed:
            lines = [
                "\t".join((*stamp, known, name))
                for name, (stamp, known) in self._remembered[folder].items()
            ]
            self._cache.put(
                _folder_key(folder), "\n".join(lines).encode("utf-8", "surrogateescape")
            )
        self._changed.clear()

    def _ask(self, path: str) -> FileState:
        now = stat_state(path)
        if now is None:
            return None
        folder, _, name = path.rpartition("/")
        if folder not in self._remembered:
            parts = self._cache.get(_folder_key(folder))
            text = parts[0].decode("utf-8", "surrogateescape") if parts else ""
            rows = (line.split("\t") for line in text.split("\n"))
            self._remembered[folder] = {
                row[5]: ((row[0], row[1], row[2], row[3]), row[4])
                for row in rows
                if len(row) == _HASH_COLUMNS
            }
        memory = self._remembered[folder]
        entry = memory.get(name)
        if entry is not None and entry[0] == _stamp(now):
            return (*now[:4], entry[1])
        identity = identify(path)
        # A younger file could change again without another time, so its hash is not kept.
        if identity is not None and max(identity[1:3]) < self._now - _SETTLED:
            memory[name] = (_stamp(identity), identity[4])
            self._changed.add(folder)
        return identity


def _folder_key(folder: str) -> str:
    return hash_bytes(folder.encode("utf-8", "surrogateescape"))


def _stamp(identity: tuple[int, int, int, int, str]) -> Stamp:
    return (str(identity[0]), str(identity[1]), str(identity[2]), str(identity[3]))


def parse_depfile(text: str) -> list[str]:
    """The paths after the colon, unescaped, in order."""
    _, _, right = _join_lines(text).partition(": ")
    paths, path = [], ""
    characters = iter(right)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            path += following if following in {" ", "#", "\\", ":"} else f"\\{following}"
        elif character == "$":
            path += character
            # Make writes a dollar sign twice.
            next(characters, "")
        elif character.isspace():
            paths.append(path)
            path = ""
        else:
            path += character
    return [path for path in (*paths, path) if path]


def parse_plain_depfile(text: str) -> list[str]:
    """`parse_depfile`, fast for the usual file in which nothing is escaped."""
    joined = _join_lines(text)
    if "\\" in joined or "$" in joined:
        return parse_depfile(text)
    return joined.partition(": ")[2].split()


def render_depfile(target: str, paths: list[str]) -> str:
    """A dependency file: `target` was made from `paths`."""
    return " \\\n ".join((f"{_escape_path(target)}:", *map(_escape_path, paths))) + "\n"


def _join_lines(text: str) -> str:
    return text.replace("\\\r\n", " ").replace("\\\n", " ").replace(":\n", ": ")


def _escape_path(path: str) -> str:
    for plain, written in ((" ", "\\ "), ("#", "\\#"), ("$", "$$")):
        if plain in path:
            path = path.replace(plain, written)
    return path


INPUTS_SUFFIX = ".inputs"
_INPUTS_FORMAT = "kbuild-inputs 1"
_ABSENT = "-"
_FIRST, _LATER, _ELSEWHERE = "first", "later", "elsewhere"
"""Place of a header: in the first searched folder that has its relative path, in a later one (it
was found beside its includer), or in none (the compiler's own)."""


class HeaderSearch:
    """Search for a command's headers in its folders, at one moment."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders
        self._exists: dict[str, bool] = {}
        self.hidden: dict[str, str] = {}
        """Header -> a file of the same relative path in an earlier folder."""

    @property
    def absent(self) -> list[str]:
        """Paths that the search tried in vain: a file there would be found instead."""
        return [path for path, exists in self._exists.items() if not exists]

    def find(self, path: str) -> tuple[str, str]:
        """Place of a header in the search, and its path relative to its folder.

        The same in two builds: what was included by that relative path is this header in both.
        """
        owner = max((f for f in self._folders if path.startswith(f"{f}/")), key=len, default="")
        if not owner:
            return _ELSEWHERE, ""
        relative = path[len(owner) + 1 :]
        # Where this folder is absent, its one path in `absent` stands for all headers below it.
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


class UnitInputs:
    """The files of one unit, from this moment on."""

    def __init__(
        self,
        settings: LauncherSettings,
        command: CompileCommand,
        environ: Mapping[str, str],
        files: FileHashes | None = None,
    ) -> None:
        """Start from nothing that was known before: create one before each look-up and each start.

        `files` are identities that several units share, which look at one moment.
        """
        self._since = file_clock()
        self._cache = settings.cache or settings.run
        self._root = settings.root
        self._command = command
        self.files = FileHashes(self._cache) if files is None else files
        """Identities of the files."""
        self.search = HeaderSearch(command.folders)
        self.programs = compiler_programs(command, environ)
        """The compilers."""
        self._always = [command.absolute(command.source), *self.programs]
        self._expected: dict[str, tuple[str, str]] = {}
        self._folders: dict[str, bool] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """Identify the files that the compiler is expected to read."""
        for path in (*self._always, *paths):
            self.files.identity(path)
            self._expected[path] = self.search.find(path)

    def read(self) -> list[str]:
        """The files that the compiler says it has read."""
        try:
            text = read_file(self._command.absolute(self._command.depfile))
        except OSError:  # it writes no depfile
            return []
        paths = parse_plain_depfile(text.decode("utf-8", "surrogateescape"))
        return list(dict.fromkeys(map(self._command.absolute, paths)))

    def changed(self, paths: Iterable[str]) -> str:
        """The first input that may not be what the compiler read; empty when there is none.

        Afterwards, `files` and `search` know them all.
        """
        since, now = file_clock(), FileHashes(self._cache)
        search = HeaderSearch(self._command.folders)
        read = list(paths)
        # Without a depfile (the compiler failed), the expected inputs are compared.
        for path in dict.fromkeys((*self._always, *(read or self._expected))):
            if path not in self._expected:
                is_changed = self._is_new(path, now, search)
            elif search.find(path) != self._expected[path]:
                is_changed = True
            else:
                is_changed = has_changed_since(path, self.files.identity(path), self._since)
            if is_changed:
                return str(path)
        self._since = since
        self.files.know(now, read)
        self.search = search
        return ""

    def record(self, target: str, paths: Iterable[str]) -> None:
        """Write beside the object `target` what it was made from."""
        read = {path: self.files.identity(path) for path in (*self._always, *paths)}
        rows = [_inputs_row(path, storable_state(then, self._since)) for path, then in read.items()]
        # A header that appears at one of these paths makes the object stale.
        rows += [_inputs_row(path, None) for path in self.search.absent]
        text = "\n".join((_INPUTS_FORMAT, _inputs_row(target, identify(target)), *rows))
        replace_file(f"{target}{INPUTS_SUFFIX}", text.encode("utf-8", "surrogateescape"))

    def _is_new(self, path: str, now: FileHashes, search: HeaderSearch) -> bool:
        """True when a header that was not expected may have come after the start."""
        search.find(path)
        hidden = search.hidden.get(path, path)
        if any(
            may_have_changed_since(state, self._since)
            for state in (now.identity(path), stat_state(hidden))
        ):
            return True
        return self._is_below_new(path)

    def _is_below_new(self, path: str) -> bool:
        """True if the path leads through a recently changed link or renamed folder of the project.

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
            moment: FileState = (0, status.st_ctime_ns, status.st_ctime_ns, 0, "")
            is_new = (is_link or is_named) and may_have_changed_since(moment, self._since)
            self._folders[path] = is_new or self._is_below_new(os.path.dirname(path))
        return self._folders[path]


def read_recorded_inputs(target: str) -> dict[str, FileState]:
    """The inputs of the object `target`, itself first; None for what was not there.

    Raises:
        OSError: there is no record.
        ValueError: it cannot be read.
    """
    return dict(map(parse_inputs_row, recorded_rows(target)))


def recorded_rows(target: str) -> list[str]:
    """The record of the object `target`, a row for each input: most have the same of most headers.

    Raises:
        OSError: there is no record.
        ValueError: it cannot be read.
    """
    text = read_file(f"{target}{INPUTS_SUFFIX}").decode("utf-8", "surrogateescape")
    first, *rows = text.split("\n")
    if first != _INPUTS_FORMAT:
        raise ValueError(f"{target}{INPUTS_SUFFIX} is not a record")
    return rows


def parse_inputs_row(row: str) -> tuple[str, FileState]:
    """Path and state of an input; None as the state of an absent file.

    Raises:
        ValueError: it is no row of a record.
    """
    size, mtime, ctime, inode, content, path = row.split("\t", 5)
    known = (int(size), int(mtime), int(ctime), int(inode), content)
    return path, None if content == _ABSENT else known


def _inputs_row(path: str, identity: FileState) -> str:
    return "\t".join(map(str, (*(identity or (0, 0, 0, 0, _ABSENT)), path)))
