"""The door to a Hub that is written to, and the ways in which it says no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from kbuild.errors import HubError
from kbuild.hub.entry import Entry
from kbuild.hub.values import Account, Commit, Refs, Repo, Tree


class Busy(HubError):  # noqa: N818 - what it is, not that it is an error
    """Too many requests, a server's own fault, or a lost connection: later it may work.

    Whether the request was carried out is not known.
    """

    def __init__(self, message: str, *, wait: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.wait = wait
        """Seconds that the Hub asked to wait."""


class Moved(HubError):  # noqa: N818
    """The branch is not where it was when the request was made up, or it exists already."""


class Missing(HubError):  # noqa: N818
    """There is no such repository, revision or file, or it is not shown to this token."""


class Denied(HubError):  # noqa: N818
    """There is no token, it is not valid, or it has no right to do this."""


class Hub(Protocol):
    """What kbuild asks of a Hub. Every method raises the errors above, and nothing else."""

    @property
    def address(self) -> str:
        """Of its pages, without a slash at the end and without credentials."""
        ...

    def whoami(self) -> Account:
        """Whom the token belongs to."""
        ...

    def is_private(self, repo: Repo) -> bool:
        """Whether others do not see the repository."""
        ...

    def refs(self, repo: Repo) -> Refs:
        """The heads as they are now."""
        ...

    def tree(self, repo: Repo, commit: str) -> Tree:
        """Every file of a commit; asked for only once."""
        ...

    def read(self, repo: Repo, commit: str, path: str) -> bytes:
        """The content of a file."""
        ...

    def dates(self, repo: Repo, commit: str) -> Mapping[str, datetime]:
        """When each variant of a commit was changed last."""
        ...

    def create_repo(self, repo: Repo, *, private: bool) -> None:
        """Make a repository; nothing happens when it exists."""
        ...

    def create_branch(self, repo: Repo, branch: str, commit: str) -> None:
        """Make a branch that points at a commit; `Moved` when it exists."""
        ...

    def delete_branch(self, repo: Repo, branch: str) -> None:
        """Remove a branch; nothing happens when there is none."""
        ...

    def send(self, repo: Repo, revision: str, entries: Sequence[Entry]) -> None:
        """Bring the contents of large files to the Hub ahead of the commit; may be repeated."""
        ...

    def commit(
        self,
        repo: Repo,
        revision: str,
        adds: Sequence[Entry],
        deletes: Sequence[str],
        *,
        parent: str,
        message: str,
        pull: bool = False,
    ) -> Commit:
        """Commit on top of `parent`; `Moved` when the branch is elsewhere by now.

        With `pull`, a pull request against the branch `revision` is opened instead.
        """
        ...
