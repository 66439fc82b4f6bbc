"""Repositories, their commits and branches, and who may do what. All of it is in memory."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

HEADS = "refs/heads/"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


class Refused(Exception):  # noqa: N818 - what the Hub does, not what went wrong here
    """The request is answered with an error."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True)
class Account:
    """The owner of a token."""

    user: str
    role: str = "write"
    organisations: tuple[str, ...] = ()

    def is_member(self, namespace: str) -> bool:
        return namespace in (self.user, *self.organisations)


def blob_id(data: bytes) -> str:
    """The name that git gives to content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324


@dataclass(frozen=True)
class Entry:
    """One file of a commit."""

    data: bytes
    is_large: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def pointer(self) -> bytes:
        return POINTER.format(self.sha256, len(self.data)).encode()

    @property
    def oid(self) -> str:
        """git's name of the blob; for a large file, of its pointer."""
        return blob_id(self.pointer if self.is_large else self.data)


Files = Mapping[str, Entry]


@dataclass(frozen=True)
class Commit:
    """A state of all files, and where it came from."""

    oid: str
    parent: str | None
    title: str
    files: Files


@dataclass(frozen=True)
class Pull:
    """A pull request; its head is the ref `refs/pr/<num>`."""

    num: int
    title: str
    author: str
    base: str


@dataclass(frozen=True)
class Change:
    """A ref has moved, which everybody sees."""

    repository: Repository
    ref: str
    after: str | None


@dataclass
class Repository:
    """Callers hold the Hub's lock while they change it."""

    name: str
    tell: Callable[[Change], None]
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    """Full names, such as `refs/heads/main`, and the commits that they point at."""
    pulls: dict[int, Pull] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    """Large objects by their SHA-256; they come before the commit that names them."""
    _commits: dict[str, Commit] = field(default_factory=dict)
    _serial: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    def full_ref(self, revision: str) -> str | None:
        """The full name of a branch or pull request; None for anything else."""
        return next((ref for ref in (HEADS + revision, revision) if ref in self.refs), None)

    def resolve(self, revision: str) -> Commit:
        """The commit of a branch, pull request or commit id.

        Raises:
            Refused: there is none.
        """
        ref = self.full_ref(revision)
        oid = self.refs[ref] if ref else revision
        if oid not in self._commits:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self._commits[oid]

    def history(self, commit: Commit) -> list[Commit]:
        """A commit and its ancestors, newest first."""
        found = [commit]
        while found[-1].parent:
            found.append(self._commits[found[-1].parent])
        return found

    def write(self, files: Files, parent: str | None, title: str) -> Commit:
        """Store a commit that nothing points at yet."""
        told = json.dumps([self.name, parent, title, next(self._serial)])
        oid = hashlib.sha1(told.encode()).hexdigest()  # noqa: S324
        self._commits[oid] = Commit(oid, parent, title, dict(files))
        return self._commits[oid]

    def commit(self, ref: str, files: Files, title: str) -> Commit:
        """Make a commit on top of a ref, which is made when it is missing."""
        made = self.write(files, self.refs.get(ref), title)
        self.move(ref, made.oid)
        return made

    def move(self, ref: str, oid: str | None) -> None:
        """Point a ref at a commit, or remove it; then tell who listens."""
        if oid is None:
            del self.refs[ref]
        else:
            self.refs[ref] = oid
        self.tell(Change(self, ref, oid))


class Hub:
    """All repositories and accounts. Every change happens under one lock."""

    def __init__(self, tokens: Mapping[str, Account], trusted: frozenset[str]) -> None:
        self.tokens, self.trusted = tokens, trusted
        self.lock = threading.RLock()
        self.complaints: list[Exception] = []
        """Errors of listeners and of this Hub, which the test raises at its end."""
        self._listeners: list[Callable[[Change], None]] = []
        self._repositories: dict[str, Repository] = {}

    def find(self, name: str) -> Repository | None:
        return self._repositories.get(name)

    def repository(self, name: str) -> Repository:
        """One that is known to be there: for tests."""
        return self._repositories[name]

    def create(self, name: str, *, private: bool = False) -> Repository:
        """A new repository with an initial commit."""
        with self.lock:
            made = self._repositories[name] = Repository(name, self._tell, private)
            made.commit(f"{HEADS}main", {".gitattributes": Entry(b"")}, "initial commit")
            return made

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call it after every change of a ref, before anybody else can make another one."""
        self._listeners.append(listener)

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception as error:  # noqa: BLE001 - an assertion of a test, kept for it
                self.complaints.append(error)
