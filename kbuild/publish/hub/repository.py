"""Repositories on the Hub: files, branches, the interface of a client, its errors, retries."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias, TypeVar

from kbuild.system.errors import HubError

KERNEL = "kernel"
"""Type of repository; kernels in repositories for models are no longer served."""
MAIN = "main"


@dataclass(frozen=True)
class Repo:
    """A repository on the Hub."""

    id: str
    """`owner/name`."""

    @property
    def owner(self) -> str:
        """A user or an organisation."""
        return self.id.partition("/")[0]

    @property
    def page(self) -> str:
        """Path of the page below the Hub's address."""
        return f"kernels/{self.id}"

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class RemoteFile:
    """A file of a commit."""

    size: int
    blob: str
    """git's id of the blob: of the content, or of the pointer where the content is in LFS."""
    sha256: str | None = None
    """Digest of the content, in hex, where that is in LFS."""


RemoteFiles: TypeAlias = Mapping[str, RemoteFile]
"""All files of a commit by their POSIX paths."""


@dataclass(frozen=True)
class Refs:
    """The heads of a repository: full commit ids."""

    branches: Mapping[str, str] = field(default_factory=dict)
    pulls: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """The owner of a token, and the rights that the Hub reports."""

    name: str
    organisations: Mapping[str, str] = field(default_factory=dict)
    """Role by organisation: `admin`, `write`, `contributor`, `read`; empty if the Hub says none."""
    writes: bool | None = None
    """True when the token may write at all; None when the Hub does not say."""
    scopes: frozenset[str] | None = None
    """Users, organisations and repositories that a fine-grained token may write to; else None."""

    def write_problem(self, repo: Repo) -> str:
        """The reason that the token cannot write to a repository; empty without one."""
        if self.writes is False:
            return f"the token of {self.name} may only read"
        if repo.owner != self.name and repo.owner not in self.organisations:
            return f"{self.name} is not a member of {repo.owner}"
        # Other roles are tried: a contributor may write to the repositories that they created.
        if self.organisations.get(repo.owner) == "read":
            return f"{self.name} may only read in {repo.owner}"
        if self.scopes is not None and not self.scopes & {repo.owner, repo.id}:
            return f"the fine-grained token of {self.name} may not write to {repo.id}"
        return ""


@dataclass(frozen=True)
class Commit:
    """A commit that was made."""

    id: str
    pull: int | None = None
    """Number of the pull request that was opened for it."""
    url: str = ""


_HASH_BLOCK = 1 << 20
_HASH_THREADS = 4


@dataclass(frozen=True)
class UploadFile:
    """A file as it should be in the repository."""

    path: str
    source: Path | bytes
    size: int
    sha256: str
    """Digest in hex: LFS's name of the content."""
    blob: str
    """The name of the content in git."""

    def is_in(self, remote: RemoteFile | None) -> bool:
        """True when the repository's file has the same content."""
        if remote is None:
            return False
        if remote.sha256 is not None:
            return remote.sha256 == self.sha256
        return remote.blob == self.blob


def read_upload_file(path: str, source: Path | bytes) -> UploadFile:
    """Read a file once, and hash it both ways.

    Raises:
        OSError: the file cannot be read.
    """
    if isinstance(source, bytes):
        blob = hashlib.sha1(_blob_header(len(source)) + source, usedforsecurity=False)
        return UploadFile(
            path, source, len(source), hashlib.sha256(source).hexdigest(), blob.hexdigest()
        )
    size = source.stat().st_size
    blob, whole = hashlib.sha1(_blob_header(size), usedforsecurity=False), hashlib.sha256()
    with source.open("rb") as file:
        while block := file.read(_HASH_BLOCK):
            blob.update(block)
            whole.update(block)
    return UploadFile(path, source, size, whole.hexdigest(), blob.hexdigest())


def read_upload_files(files: Iterable[tuple[str, Path]]) -> tuple[UploadFile, ...]:
    """Several files, hashed at the same time; in the order in which they were given."""
    wanted = tuple(files)
    if not wanted:
        return ()
    with ThreadPoolExecutor(_HASH_THREADS) as pool:
        return tuple(pool.map(lambda pair: read_upload_file(*pair), wanted))


def _blob_header(size: int) -> bytes:
    return f"blob {size}\0".encode()


class BusyError(HubError):
    """Too many requests, a server's own fault, or a lost connection: it may work later.

    The Hub may have carried out the request all the same.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        """Seconds that the Hub asked to wait; None if it did not."""


class ConflictError(HubError):
    """The branch is not where it was when the request was put together, or it exists already."""


class NotFoundError(HubError):
    """There is no such repository, revision or file, or it is not shown to this token."""


class AccessDeniedError(HubError):
    """There is no token, it is not valid, or it has no right to do this."""


T = TypeVar("T")


@dataclass
class RetryPolicy:
    """The limits on repeating a call."""

    tries: int = 8
    """Failures in a row after which a call is given up."""
    first_wait_s: float = 1.0
    """Before the second try. Each further wait is twice as long. A random part of up to the same
    length is added, so that clients do not come back together."""
    longest_wait_s: float = 320.0
    """Longer than the five minutes over which the Hub counts requests."""
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = lambda _: None
    random: Random = field(default_factory=Random)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function, which must be safe to repeat, until it works.

        Raises:
            BusyError: the last try failed as well.
        """
        for failures in range(1, self.tries):
            try:
                return function()
            except BusyError as busy:
                self.wait(busy, failures)
        return function()

    def wait(self, busy: BusyError, failures: int) -> None:
        """Wait after so many failures in a row, at least as long as the Hub asks.

        Raises:
            BusyError: `busy` itself, after too many failures or if the Hub asks for too long.
        """
        asked_s = busy.retry_after_s
        if failures >= self.tries or (asked_s or 0) > self.longest_wait_s:
            raise busy
        spread = 1 + self.random.random()
        if asked_s is None:
            doubled_s = self.first_wait_s * 2 ** (failures - 1)
            seconds = min(doubled_s, self.longest_wait_s / 2) * spread
        else:
            seconds = asked_s + self.first_wait_s * spread
        self.say(f"{busy.message}; trying again in {seconds:.0f} s")
        self.sleep(seconds)
