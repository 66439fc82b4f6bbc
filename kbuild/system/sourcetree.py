"""Read access to a project's files, which remembers every file that was read.

What a verdict or a plan depends on is exactly what was looked at. `observed` says so, and
`file_state.all_unchanged` tells later, with one `stat` per path, whether it would show the same.

Files are taken from inside the project only, and only what is a file: `fault` says what is wrong
with a path, `walk` leaves such paths out, and reading one is an error.

A tree shows one state of the project: what `scan` and `digest` have read of a file is not read
again. Whoever wants to see what was edited since makes another tree.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from kbuild.system.file_state import FileState, stat_state, state_of_stat

if TYPE_CHECKING:
    from kbuild.system.errors import ConfigError

TEXT_LIMIT = 64 << 20
"""Bytes of the largest file that is read into memory as a whole."""
_BLOCK = 1 << 20
_Scan = TypeVar("_Scan")


class PathProblem(NamedTuple):
    """The reason why a path is not taken from a project."""

    message: str
    hint: str


class SourceTree:
    """Read-only view of one project's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.observed: dict[str, FileState] = {}
        self._top = os.fspath(root)
        self._real: dict[str, str] = {}
        """Folders as they are written, and with links resolved."""
        self._digests: dict[str, bytes] = {}
        self._scans: dict[tuple[str, Callable[[bytes], Any]], Any] = {}

    def _observe(self, path: str) -> str:
        full = os.path.join(self._top, path)
        if path not in self.observed:
            # Before the content is read: an edit in between then counts as a change.
            self.observed[path] = stat_state(full)
        return full

    def _mode(self, path: str) -> int:
        """Mode of the file at a path; 0 if there is none, or if no file can have that name."""
        full = os.path.join(self._top, path)
        try:
            status = os.stat(full)
        except (OSError, ValueError):
            self.observed.setdefault(path, None)
            return 0
        if path not in self.observed:
            self.observed[path] = state_of_stat(status)
        return status.st_mode

    def is_file(self, path: str) -> bool:
        """True when `path` (relative to the project) is a file."""
        return stat.S_ISREG(self._mode(path))

    def is_dir(self, path: str) -> bool:
        """True when `path` is a folder."""
        return stat.S_ISDIR(self._mode(path))

    def open(self, path: str) -> IO[bytes]:
        """The file, opened for reading; never waits, as opening a pipe would.

        Raises:
            ConfigError: it is not a file, or leads out of the project.
            OSError: it cannot be opened.
        """
        self.refuse(path)
        file = os.fdopen(os.open(self._observe(path), os.O_RDONLY | os.O_NONBLOCK), "rb")
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            file.close()
            raise self._refusal(path, _not_a_file(path, mode))
        return file

    def refuse(self, path: str) -> None:
        """Refuse a path that is not taken from a project.

        Raises:
            ConfigError: it is not a file, or leads out of the project.
        """
        fault = self.fault(path)
        if fault is not None:
            raise self._refusal(path, fault)

    def read_bytes(self, path: str, limit: int = TEXT_LIMIT) -> bytes:
        """The file's bytes.

        Raises:
            ConfigError: it is not a file, leads out of the project, or has more than `limit` bytes.
            OSError: it cannot be read.
        """
        with self.open(path) as file:
            if os.fstat(file.fileno()).st_size <= limit:
                data = file.read(limit + 1)
                if len(data) <= limit:
                    self._digests.setdefault(path, hashlib.sha256(data).digest())
                    return data
        message = f"`{path}` has more than {limit >> 20} MB, the most that is read as text"
        raise self._refusal(
            path, PathProblem(message, "data of that size belongs into another file")
        )

    def read_text(self, path: str) -> str:
        """The file's text as UTF-8; undecodable bytes are replaced."""
        return self.read_bytes(path).decode("utf-8", errors="replace")

    def scan(self, path: str, read: Callable[[bytes], _Scan]) -> _Scan:
        """Return the result of `read` for the file's bytes; a file is read once, by whatever name.

        Raises:
            ConfigError, OSError: as `read_bytes` does.
        """
        key = (path, read)
        if key not in self._scans:
            # A link to a file of the project is that file.
            real = (self._located(path), read)
            if real not in self._scans:
                self._scans[real] = read(self.read_bytes(path))
            self._scans[key] = self._scans[real]
        scan: _Scan = self._scans[key]
        return scan

    def digest(self, path: str) -> bytes:
        """SHA-256 of the file; one that was read before is not read again.

        Raises:
            ConfigError: it is not a file, or leads out of the project.
            OSError: it cannot be read.
        """
        if path not in self._digests:
            hasher = hashlib.sha256()
            with self.open(path) as file:
                while block := file.read(_BLOCK):
                    hasher.update(block)
            self._digests[path] = hasher.digest()
        return self._digests[path]

    def is_inside(self, path: str) -> bool:
        """True when `path`, with symbolic links resolved, stays below the project's root."""
        root, real = self._resolved(""), self._located(path)
        return real == root or real.startswith(root.rstrip(os.sep) + os.sep)

    def canonical(self, path: str) -> str:
        """The path with links of its folders resolved, as long as it stays in the project.

        What lies in a folder is then one path, by whatever link the folder was reached.
        """
        folder, name = posixpath.split(path)
        root, real = self._resolved(""), self._resolved(folder)
        if real == root:
            return name
        prefix = root.rstrip(os.sep) + os.sep
        inside = real.startswith(prefix)
        return f"{real[len(prefix) :].replace(os.sep, '/')}/{name}" if inside else path

    def _located(self, path: str) -> str:
        """The absolute path with all links resolved."""
        folder, name = posixpath.split(path)
        full = os.path.join(self._resolved(folder), name)
        is_plain = name not in ("", ".", "..") and not os.path.islink(full)
        return full if is_plain else os.path.realpath(full)

    def fault(self, path: str) -> PathProblem | None:
        """The problem of a path that is to be read; None for a file, or if nothing is there.

        A link is judged by where it leads.

        Raises:
            OSError: no file can have that name.
        """
        if "\0" in path:
            return PathProblem(f"`{path}` cannot be the name of a file", "correct the name")
        full = os.path.join(self._top, path)
        try:
            mode = os.lstat(full).st_mode
            if not self.is_inside(path):
                return PathProblem(
                    f"`{path}` leads out of the project",
                    "copy it in, so that the project builds anywhere",
                )
            if stat.S_ISLNK(mode):
                mode = os.stat(full).st_mode
        except OSError as error:
            if os.path.islink(full):
                message = f"`{path}` is a link that leads nowhere ({error.strerror})"
                return PathProblem(message, "delete it, or copy the file in")
            if error.errno == errno.ENAMETOOLONG:
                raise
            return None
        return None if stat.S_ISREG(mode) else _not_a_file(path, mode)

    def walk(self, folder: str, *, skip: Iterable[str] = ()) -> tuple[str, ...]:
        """Files below `folder` as sorted POSIX paths relative to the project.

        Folders named in `skip`, hidden folders and bytecode are left out, and so is what `faults`
        names.
        """
        entries = self._entries(folder, skip)
        return tuple(sorted(path for path, is_plain in entries if is_plain or not self.fault(path)))

    def faults(
        self, folder: str, *, skip: Iterable[str] = ()
    ) -> tuple[tuple[str, PathProblem], ...]:
        """Pipes, devices and links that lead out or nowhere: paths below `folder`, and why."""
        return tuple(
            (path, fault)
            for path in self._odd(folder, skip)
            if not self._is_linked_folder(path) and (fault := self.fault(path)) is not None
        )

    def linked_folders(self, folder: str, *, skip: Iterable[str] = ()) -> tuple[str, ...]:
        """Links below `folder` to other folders of the project, which `walk` does not follow."""
        return tuple(path for path in self._odd(folder, skip) if self._is_linked_folder(path))

    def _odd(self, folder: str, skip: Iterable[str]) -> list[str]:
        return sorted(path for path, is_plain in self._entries(folder, skip) if not is_plain)

    def _is_linked_folder(self, path: str) -> bool:
        return self.is_dir(path) and self.is_inside(path)

    def _entries(self, folder: str, skip: Iterable[str]) -> Iterator[tuple[str, bool]]:
        """Entries that are no folders: each path, and True if it is a plain file."""
        skipped = {"__pycache__", *skip}
        waiting = [str(PurePosixPath(folder))]
        while waiting:
            base = waiting.pop()
            self._observe(base)
            try:
                with os.scandir(self.root / base) as folder_entries:
                    entries = list(folder_entries)
            except OSError:
                continue  # as where there is no such folder
            for entry in entries:
                path = entry.name if base == "." else f"{base}/{entry.name}"
                # The target of a link may change while the folder stays as it is.
                if entry.is_symlink():
                    self._observe(path)
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in skipped and not entry.name.startswith("."):
                        waiting.append(path)
                elif not entry.name.endswith(".pyc"):
                    yield path, entry.is_file(follow_symlinks=False)

    def _resolved(self, folder: str) -> str:
        if folder not in self._real:
            self._real[folder] = os.path.realpath(self.root / folder)
        return self._real[folder]

    def _refusal(self, path: str, fault: PathProblem) -> ConfigError:
        from kbuild.system.errors import ConfigError, Problem

        shown = os.path.relpath(self.root / path)
        shown = str(self.root.absolute() / path) if shown.startswith("..") else shown
        return ConfigError([Problem(shown, 0, "", *fault)])


def _not_a_file(path: str, mode: int) -> PathProblem:
    if stat.S_ISDIR(mode):
        return PathProblem(f"`{path}` is a folder, not a file", "list the files in it")
    from kbuild.system.untrusted import special_file_kind

    return PathProblem(
        f"`{path}` is {special_file_kind(mode)}, not a file", "delete it, or make it a file"
    )
