"""One repository: commits, branches, pull requests and the content of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from tests.support.hub.answers import no_revision
from tests.support.hub.attributes import DEFAULT_ATTRIBUTES
from tests.support.hub.files import write_atomically
from tests.support.hub.values import Commit, Entry, Files, Pull, folder_ids, now, object_id

HEADS = "refs/heads/"


@dataclass(frozen=True)
class Facts:
    """All of a repository that changes."""

    private: bool = False
    created: str = ""
    refs: Mapping[str, str] = field(default_factory=dict)
    """Full names, such as `refs/heads/main`, and the commits that they point at."""
    pulls: Mapping[int, Pull] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """A ref has moved. The new state is on disk and visible to everybody."""

    repository: Repository
    ref: str
    before: str | None
    after: str | None


class Repository:
    """Callers hold the Hub's lock while they change it."""

    def __init__(
        self, folder: Path, kind: str, name: str, tell: Callable[[Change], None], *, private: bool
    ) -> None:
        self.folder = folder
        self.kind = kind
        self.name = name
        self._tell = tell
        self._commits: dict[str, Commit] = {}
        self._serial = count()
        self.facts = Facts(private, now())

    @classmethod
    def create(
        cls, folder: Path, kind: str, name: str, tell: Callable[[Change], None], *, private: bool
    ) -> Repository:
        """A new one, with the first commit that the Hub makes itself."""
        made = cls(folder, kind, name, tell, private=private)
        first = {".gitattributes": made.add_blob(DEFAULT_ATTRIBUTES.encode())}
        made.commit(HEADS + "main", first, "initial commit", name.partition("/")[0])
        return made

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    # -- content

    def blob(self, oid: str) -> Path:
        return self.folder / "blobs" / oid

    def large(self, sha256: str) -> Path:
        return self.folder / "lfs" / sha256

    def content(self, entry: Entry) -> Path:
        return self.large(entry.sha256) if entry.sha256 else self.blob(entry.oid)

    def add_blob(self, data: bytes) -> Entry:
        """Store what git stores itself."""
        oid = object_id("blob", data)
        if not self.blob(oid).exists():
            write_atomically(self.blob(oid), data)
        return Entry(oid, len(data))

    # -- commits

    def full_ref(self, revision: str) -> str | None:
        """The full name of a branch or pull request; None for anything else."""
        for prefix in (HEADS, ""):
            if prefix + revision in self.facts.refs:
                return prefix + revision
        return None

    def resolve(self, revision: str) -> Commit:
        """The commit of a branch, pull request or commit id.

        Raises:
            Refused: there is none.
        """
        ref = self.full_ref(revision)
        oid = self.facts.refs[ref] if ref else revision
        if oid not in self._commits:
            raise no_revision(revision)
        return self._commits[oid]

    def history(self, commit: Commit) -> list[Commit]:
        """A commit and its ancestors, newest first."""
        found = [commit]
        while found[-1].parents:
            found.append(self.resolve(found[-1].parents[0]))
        return found

    def commit(self, ref: str, files: Files, title: str, author: str, message: str = "") -> Commit:
        """Make a commit on top of a ref, which is made when it is missing."""
        head = self.facts.refs.get(ref)
        made = self.write(files, (head,) if head else (), title, author, message)
        self.move(ref, made.oid)
        return made

    def write(
        self, files: Files, parents: tuple[str, ...], title: str, author: str, message: str = ""
    ) -> Commit:
        """Store a commit that nothing points at yet."""
        date = now()
        lines = [f"tree {folder_ids(files)['']}", *(f"parent {oid}" for oid in parents)]
        lines += [f"author {author} {date} {next(self._serial)}", "", title, "", message]
        oid = object_id("commit", "\n".join(lines).encode())
        made = Commit(oid, parents, title, message, author, date, dict(files))
        self._commits[oid] = made
        return made

    # -- refs

    def move(self, ref: str, oid: str | None, pull: Pull | None = None) -> None:
        """Point a ref at a commit, or remove it; then tell who listens."""
        before = self.facts.refs.get(ref)
        refs = {name: value for name, value in self.facts.refs.items() if name != ref}
        if oid is not None:
            refs[ref] = oid
        pulls = {**self.facts.pulls, pull.num: pull} if pull else self.facts.pulls
        self.facts = replace(self.facts, refs=refs, pulls=pulls)
        self._tell(Change(self, ref, before, oid))

    def branch(self, revision: str) -> str:
        """The full name of what a commit may be made on.

        Raises:
            Refused: it is neither a branch nor a pull request.
        """
        ref = self.full_ref(revision)
        if ref is None:
            raise no_revision(revision)
        return ref
