"""What is said about a repository: where it is, what its branches hold, who is asking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

RepoKind = Literal["kernel", "model"]
MAIN = "main"


@dataclass(frozen=True)
class Repo:
    """A repository on the Hub."""

    id: str
    """`owner/name`."""
    kind: RepoKind = "kernel"

    @property
    def owner(self) -> str:
        """A user or an organisation."""
        return self.id.partition("/")[0]

    @property
    def page(self) -> str:
        """Its address below the Hub's own."""
        return f"kernels/{self.id}" if self.kind == "kernel" else self.id

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class RemoteFile:
    """A file of a commit."""

    size: int
    blob: str
    """git's id of the blob: of the content, or of the pointer where the content is in LFS."""
    sha256: str | None = None
    """Of the content, in hex, where that is in LFS."""


Tree: TypeAlias = Mapping[str, RemoteFile]
"""All files of a commit by their POSIX paths."""


@dataclass(frozen=True)
class Refs:
    """The heads of a repository: full commit ids."""

    branches: Mapping[str, str] = field(default_factory=dict)
    pulls: Mapping[int, str] = field(default_factory=dict)
    """Pull requests by number."""


@dataclass(frozen=True)
class Account:
    """Whom a token belongs to, and what it may do as far as the Hub tells."""

    name: str
    organisations: Mapping[str, str] = field(default_factory=dict)
    """Role by organisation: `admin`, `write`, `contributor`, `read`, or empty when not told."""
    writes: bool | None = None
    """Whether the token may write at all; None when that is not told."""
    scopes: frozenset[str] | None = None
    """Where a fine-grained token may write: users, organisations, repositories; else None."""

    def why_not(self, repo: Repo) -> str:
        """Why the token cannot write to a repository; empty when nothing speaks against it."""
        if self.writes is False:
            return f"the token of {self.name} may only read"
        if repo.owner != self.name and repo.owner not in self.organisations:
            return f"{self.name} is not a member of {repo.owner}"
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
    """Of that pull request."""
