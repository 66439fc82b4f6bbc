"""What an upload is asked for, what it knows while it runs, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from kbuild.hub.layout import Layout
from kbuild.hub.patience import Patience
from kbuild.hub.remote import Hub
from kbuild.hub.values import MAIN, Repo

Status = Literal["no_changes", "uploaded", "pull_request_created"]
_STAGING = "kbuild-upload-"


@dataclass(frozen=True)
class Target:
    """Where to."""

    repo: Repo
    branch: str
    private: bool = False
    """Whether a repository that does not exist yet is made private."""
    pull: bool = False
    """Whether pull requests are opened instead of changing the branches."""


@dataclass(frozen=True)
class Proposal:
    """A pull request that was opened."""

    branch: str
    number: int
    url: str

    def to_json(self) -> dict[str, Any]:
        """As the reference tool writes it."""
        return {"branch": self.branch, "url": self.url}


@dataclass
class Job:
    """An upload that runs."""

    hub: Hub
    target: Target
    layout: Layout
    patience: Patience
    say: Callable[[str], None]
    commits: int = 0
    """Made so far, by this run."""
    branches: int = 0
    """Version branches made so far."""
    proposals: list[Proposal] = field(default_factory=list)

    @property
    def repo(self) -> Repo:
        """Where to."""
        return self.target.repo


@dataclass(frozen=True)
class Outcome:
    """How an upload ended."""

    status: Status
    target: Target
    address: str
    """Of the Hub."""
    commits: int = 0
    proposals: tuple[Proposal, ...] = ()

    @property
    def url(self) -> str | None:
        """Of what was uploaded; None when nothing was."""
        if self.status == "no_changes":
            return None
        if self.proposals:
            return self.proposals[0].url
        return f"{self.address}/{self.target.repo.page}/tree/{self.target.branch}"

    def to_json(self) -> dict[str, Any]:
        """The fields that `--output-json` of the reference tool has, in its order."""
        return {
            "status": self.status,
            "repo_id": self.target.repo.id,
            "branch": self.target.branch,
            "url": self.url,
            "pull_requests": [proposal.to_json() for proposal in self.proposals],
        }


def staging_name(branch: str, layout: Layout) -> str:
    """The branch on which a version is put together: another one for another content."""
    return f"{_STAGING}{branch}-{layout.fingerprint}"


def staging_names(branch: str, branches: Iterable[str]) -> tuple[str, ...]:
    """The branches on which some upload of a version was put together, or still is."""
    prefix = f"{_STAGING}{branch}-"
    digits = frozenset("0123456789abcdef")
    return tuple(
        sorted(
            name
            for name in branches
            if name != MAIN and name.startswith(prefix) and digits >= {*name[len(prefix) :]}
        )
    )
