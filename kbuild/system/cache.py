"""The cache: what kbuild can compute again, kept by kind and key.

    <folder>/<kind>/<kk>/<rest of the key>    an entry: a header, then its parts
    <folder>/locks/<kk>/<rest of the key>     a lock, which ends with its process
    <project's folder>/<kind>[-<key>]         an entry of a project

`<kk>` are the first two characters of the key. The key may be empty in a project, which then has
one entry of the kind.

An entry of a kind that `is_folder` is a folder, with header and parts in its file `record`.

The header names the kind, its version, and a digest of key and parts. An entry is written beside
its place and renamed, so that readers see all of it or none. An entry that is damaged, or that
belongs to a user who is not trusted, is removed, and computed again. An entry that cannot be
written is not kept. Both are reported once per process, and fail nothing.

Compiler launchers import this once per translation unit: it imports nothing that takes time.
"""

from __future__ import annotations

import os
import stat
import time

from kbuild.system.atomic import (
    DRAFT_SUFFIX,
    files_below,
    remove_path,
    replace_file,
)
from kbuild.system.file_state import hash_bytes

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO, TypeVar

    StrPath = str | os.PathLike[str]
    T = TypeVar("T")

SHARED_CACHE_VARIABLE = "KBUILD_SHARED_CACHE"
"""Variable that lets other users write to the cache."""
LOCKS_FOLDER = "locks"
_RECORD_FILE = "record"
_MAGIC = b"kbuild-entry"
_MAX_HEADER = 4096
_TOUCH_SECONDS = 60
"""Seconds between two updates of an entry's last use: exact enough to find unused entries."""


class Kind:
    """One kind of entries, and how long they stay."""

    def __init__(
        self,
        name: str,
        title: str,
        *,
        version: int = 1,
        max_entries: int = 0,
        limit: str = "",
        in_project: bool = False,
        is_folder: bool = False,
    ) -> None:
        self.name = name
        """The folder in the cache, or the file in the project."""
        self.title = title
        """The entries in words, for `kbuild cache`."""
        self.version = version
        """Version of the format; entries of another version are not read."""
        self.max_entries = max_entries
        """Number of entries that are kept, the last used ones; 0 for any number."""
        self.limit = limit
        """Name of the limit on the bytes of all kinds that have it; empty for none."""
        self.in_project = in_project
        """True for entries that lie in a project's folder and stay as long as that."""
        self.is_folder = is_folder
        """True for entries with files that a program reads: only their record is verified."""


OBJECTS_LIMIT, HEADERS_LIMIT = "objects", "headers"
ANSWERS_TITLE = "answers and facts"

PACKAGE_DIGESTS = Kind("package", ANSWERS_TITLE)
CONFIG_CHECKS = Kind("config", ANSWERS_TITLE)
FACTS = Kind("facts", ANSWERS_TITLE)
PROBE_ANSWERS = Kind("probes", ANSWERS_TITLE, max_entries=4000)
PROBE_FILES = Kind("probe-files", ANSWERS_TITLE, max_entries=64)
BUILT_VARIANTS = Kind("built", ANSWERS_TITLE, max_entries=20_000)
FILE_HASHES = Kind("hashes", ANSWERS_TITLE)
UNIT_COSTS = Kind("costs", ANSWERS_TITLE)
DESCRIPTIONS = Kind("descriptions", "descriptions of DSL kernels")
IMAGES = Kind("images", "images of DSL kernels", limit=OBJECTS_LIMIT)
OBJECTS = Kind("objects", "objects", limit=OBJECTS_LIMIT)
HEADERS = Kind("headers", "precompiled headers", limit=HEADERS_LIMIT, is_folder=True)
HEADER_REQUESTS = Kind("header-requests", ANSWERS_TITLE)
KINDS = (
    PACKAGE_DIGESTS, CONFIG_CHECKS, FACTS, PROBE_ANSWERS, PROBE_FILES, BUILT_VARIANTS,
    FILE_HASHES, UNIT_COSTS, DESCRIPTIONS, IMAGES, OBJECTS, HEADERS,
    HEADER_REQUESTS,
)  # fmt: skip

BUILD_STATE = Kind("state", "the last good build of a variant", in_project=True)
UNCHANGED_BUILD = Kind("unchanged", "the output of an unchanged build", in_project=True)
LOADED_VARIANT = Kind("loaded", "a variant of `kbuild.load`", in_project=True)
FILLED_CARD = Kind("card", "the inputs of a card", in_project=True)
PRINTED_WARNINGS = Kind("warnings", "warnings that a build has printed", in_project=True)
NIX_COPY = Kind("nix-copy", "a copy from Nix's store", in_project=True)
PROJECT_KINDS = (
    BUILD_STATE, UNCHANGED_BUILD, LOADED_VARIANT, FILLED_CARD, PRINTED_WARNINGS, NIX_COPY,
)  # fmt: skip
"""The kinds in the folder `.kbuild` of a project, and in folders below."""


class Entry:
    """One entry, as a file or folder."""

    def __init__(self, key: str, path: str, used: float, size: int) -> None:
        self.key = key
        self.path = path
        self.used = used
        """Time of the last use, in seconds since the epoch."""
        self.size = size


class Cache:
    """The entries of one kind below a folder; without a folder, nothing is kept."""

    def __init__(self, folder: StrPath | None, kind: Kind) -> None:
        self.kind = kind
        self.folder = "" if folder is None else os.fspath(folder)

    def path(self, key: str = "") -> str:
        """Path of the entry, whether it is there or not."""
        if self.kind.in_project:
            return f"{self.folder}/{self.kind.name}{'-' if key else ''}{key}"
        return f"{self.folder}/{self.kind.name}/{key[:2]}/{key[2:]}"

    def file(self, key: str = "") -> str:
        """The file with header and parts of the entry."""
        return f"{self.path(key)}/{_RECORD_FILE}" if self.kind.is_folder else self.path(key)

    def get(self, key: str = "") -> list[bytes] | None:
        """The parts of an entry; None when there is none."""
        if not self.folder:
            return None
        path = self.file(key)
        try:
            with self._open(path) as file:
                data, used = file.read(), os.fstat(file.fileno()).st_mtime
            parts = self._unpack(key, data)
        except OSError:
            return None
        except ValueError as error:
            self.discard(key, str(error))
            return None
        if parts is not None and not self.kind.in_project and time.time() - used > _TOUCH_SECONDS:
            try:
                os.utime(path)
            except OSError:
                pass  # removed by another process, or a cache that cannot be written
        return parts

    def get_parsed(self, key: str, parse: Callable[[list[bytes]], T]) -> T | None:
        """An entry as `parse` reads its parts; None when there is none.

        Whatever `parse` raises means that the entry is damaged.
        """
        parts = self.get(key)
        if parts is None:
            return None
        try:
            return parse(parts)
        except Exception as error:  # noqa: BLE001 - a project's entries are anybody's
            self.discard(key, f"{type(error).__name__}: {error}")
            return None

    def get_json(self, key: str, parse: Callable[[Any], T]) -> T | None:
        """See `get_parsed`, for an entry that holds JSON."""
        import json

        return self.get_parsed(key, lambda parts: parse(json.loads(parts[0])))

    def first_part(self, key: str) -> bytes | None:
        """The first part of an entry, read alone; `get` verifies the entry."""
        try:
            with self._open(self.file(key)) as file:
                lengths = self._parse_header(file.readline(_MAX_HEADER))[1]
                return file.read(lengths[0]) if lengths else None
        except OSError:
            return None
        except ValueError as error:
            self.discard(key, str(error))
            return None

    def newest(self, group: str) -> list[str]:
        """Keys that begin with `<group>/`, the last used one first."""
        try:
            with os.scandir(self.path(group)) as files:
                dated = [
                    (file.stat().st_mtime_ns, f"{group}/{file.name}")
                    for file in files
                    if not file.name.endswith(DRAFT_SUFFIX)
                ]
        except OSError:
            return []
        return [key for _, key in sorted(dated, reverse=True)]

    def put(self, key: str, *parts: bytes) -> bool:
        """Keep an entry; False when it could not be written, which costs nothing but time."""
        if not self.folder:
            return False
        path = self.file(key)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            replace_file(path, self.pack(key, *parts))
        except OSError as error:
            _report("write", f"the cache in `{self.folder}` cannot be written: {error.strerror}")
            return False
        return True

    def put_folder(self, key: str, draft: str, *parts: bytes) -> None:
        """Make the folder `draft`, a path from `draft_path`, a new entry.

        Raises:
            OSError: the cache cannot be written, or another process was first.
        """
        replace_file(f"{draft}/{_RECORD_FILE}", self.pack(key, *parts))
        # A folder with files is not replaced by a rename: it fails if another process was first.
        os.rename(draft, self.path(key))

    def put_json(self, key: str, value: object) -> bool:
        """Keep JSON; see `put`.

        Raises:
            ValueError, TypeError: the value is not JSON.
        """
        import json

        return self.put(key, json.dumps(value).encode())

    def discard(self, key: str, reason: str) -> None:
        """Remove a damaged entry, and report that."""
        path = self.path(key)
        if not self.kind.in_project:  # where a link may lead anywhere, until the entry is replaced
            remove_path(path)
        text = f"the cache has a damaged entry ({self.kind.name}), which is not used: {reason}"
        _report("read", text)

    def remove(self, key: str = "") -> None:
        """Remove an entry, if it is there."""
        remove_path(self.path(key))

    def entries(self) -> Iterator[Entry]:
        """The entries of a kind in the cache folder."""
        top = f"{self.folder}/{self.kind.name}/"
        folders: dict[str, Entry] = {}
        for path, status in files_below(top):
            if DRAFT_SUFFIX in path[len(top) :]:
                continue
            entry = os.path.dirname(path) if self.kind.is_folder else path
            key = entry[len(top) :].replace("/", "", 1)
            if not self.kind.is_folder:
                yield Entry(key, path, status.st_mtime, status.st_size)
                continue
            known = folders.setdefault(key, Entry(key, entry, 0.0, 0))
            known.size += status.st_size
            # The record's time counts: `get` sets it, and no other file's.
            if path == self.file(key):
                known.used = status.st_mtime
        yield from folders.values()

    def lock(self, key: str) -> EntryLock:
        """The lock of those who want to compute the same entry."""
        return EntryLock(f"{self.folder}/{LOCKS_FOLDER}/{key[:2]}/{key[2:]}")

    def _open(self, path: str) -> BinaryIO:
        """Open the file of an entry.

        Raises:
            OSError: there is none.
            ValueError: it is not a file, or belongs to a user who is not trusted.
        """
        # Reading a pipe in the place of an entry would never end.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and (self.kind.in_project or _is_trusted(status)):
            return open(handle, "rb")
        os.close(handle)
        is_file = stat.S_ISREG(status.st_mode)
        raise ValueError("it belongs to another user" if is_file else "it is not a file")

    def pack(self, key: str, *parts: bytes) -> bytes:
        """An entry as the bytes of its file."""
        lengths = b" ".join(b"%d" % len(part) for part in parts)
        body = b"".join(parts)
        digest = self._digest(key, lengths, body).encode()
        names = f"{self.kind.name} {self.kind.version}".encode()
        # The lengths come first, so that `first_part` reads no more than it needs.
        return b"%b %b %b %b\n%b" % (_MAGIC, names, digest, lengths, body)

    def _unpack(self, key: str, data: bytes) -> list[bytes] | None:
        """The parts of a file; None for an entry of another version, ValueError for damage."""
        header, _, body = data.partition(b"\n")
        digest, lengths = self._parse_header(header)
        if not digest:
            return None
        text = b" ".join(b"%d" % length for length in lengths)
        if self._digest(key, text, body) != digest or sum(lengths) != len(body):
            raise ValueError("its digest is not that of its content")
        parts, start = [], 0
        for length in lengths:
            parts.append(body[start : start + length])
            start += length
        return parts

    def _digest(self, key: str, lengths: bytes, body: bytes) -> str:
        text = f"{self.kind.name}\0{self.kind.version}\0{key}\0".encode("utf-8", "surrogateescape")
        return hash_bytes(b"%b%b\0%b" % (text, lengths, body))

    def _parse_header(self, line: bytes) -> tuple[str, list[int]]:
        """Digest and lengths; no digest for an entry of another version, ValueError for damage."""
        magic, name, version, digest, *lengths = line.split()
        if magic != _MAGIC or name.decode() != self.kind.name:
            raise ValueError("it has no header of its kind")
        if int(version) != self.kind.version:
            return "", []
        return digest.decode(), [int(length) for length in lengths]


class EntryLock:
    """A lock in the cache; it ends with its process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def try_acquire(self) -> bool:
        """Take the lock until `release`; False when another process has it.

        Raises:
            OSError: the cache cannot be written.
        """
        import fcntl

        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.utime(self._file)  # locks that nobody used for long are removed
        return True

    def wait(self) -> None:
        """Wait until the other process has released it; nobody has it afterwards."""
        import fcntl

        fcntl.flock(self._file, fcntl.LOCK_SH)
        self.release()

    def release(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _is_trusted(status: os.stat_result) -> bool:
    """True for files of this user and of root, and where every user is trusted."""
    return status.st_uid in (0, os.geteuid()) or os.environ.get(SHARED_CACHE_VARIABLE) == "1"


_handler: Callable[[str], None] | None = None
_reported: set[str] = set()


def report_trouble_to(handler: Callable[[str], None] | None) -> None:
    """Call `handler` with the first write error and the first damaged entry."""
    global _handler  # noqa: PLW0603
    _handler = handler
    _reported.clear()


def _report(trouble: str, text: str) -> None:
    if _handler is not None and trouble not in _reported:
        _reported.add(trouble)
        _handler(text)
