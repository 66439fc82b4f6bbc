"""The whole Hub: repositories below one folder, accounts, limits, and who is told of changes."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.hub.accounts import Account, Accounts
from tests.support.hub.answers import Refused, no_repository
from tests.support.hub.repository import HEADS, Change, Repository

KINDS = ("kernels", "models", "datasets")
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True)
class Limits:
    """What the server takes; the numbers are those that huggingface_hub documents or keeps to."""

    large_from: int = 10 << 20
    """Bytes from which on a file goes to LFS, whatever `.gitattributes` says (assumed)."""
    preupload_files: int = 256
    page: int = 1000
    large_files: int = 25_000
    """Large files in a commit."""
    commit_bytes: int = 10**9
    """Size of the payload of a commit."""


class Hub:
    """Content of files is on disk, the rest in memory. Every change happens under one lock."""

    def __init__(self, root: Path, accounts: Accounts) -> None:
        self.root = root
        self.limits = Limits()
        self.lock = threading.RLock()
        self.complaints: list[Exception] = []
        """What listeners have raised."""
        self._listeners: list[Callable[[Change], None]] = []
        self._repositories: dict[tuple[str, str], Repository] = {}
        root.mkdir(parents=True, exist_ok=True)
        self.accounts = accounts
        self.secret = secrets.token_bytes(16)
        """Signs URLs of the storage."""

    # -- repositories

    def find(self, kind: str, name: str) -> Repository | None:
        return self._repositories.get((kind, name))

    def repository(self, name: str, kind: str = "kernels") -> Repository:
        """One that is known to be there: for tests."""
        return self._repositories[kind, name]

    def visible(self, kind: str, name: str, account: Account | None) -> Repository:
        """A repository that the account may see.

        Raises:
            Refused: there is none, or it is somebody else's private one.
        """
        found = self.find(kind, name)
        hidden = (
            found and found.facts.private and not (account and account.may_read(found.namespace))
        )
        if found is None or hidden:
            raise no_repository(account is not None)
        return found

    def writable(self, kind: str, name: str, account: Account | None) -> Repository:
        """A repository that the account may change.

        Raises:
            Refused: it may not.
        """
        found = self.visible(kind, name, account)
        self.check_rights(account, found.namespace)
        return found

    def check_rights(self, account: Account | None, namespace: str) -> None:
        if account is None:
            raise Refused(401, "Invalid username or password.")
        if not account.may_write(namespace):
            raise Refused(403, f"You don't have the rights to write to {namespace}")

    def create(self, kind: str, name: str, *, private: bool = False) -> Repository:
        """A new repository with an initial commit.

        Raises:
            Refused: the name is taken, or none.
        """
        with self.lock:
            if kind not in KINDS or not _NAME.fullmatch(name) or "--" in name or ".." in name:
                raise Refused(400, f"Invalid repository name: {name}")
            if (kind, name) in self._repositories:
                raise Refused(409, "You already created this repo")
            folder = self.root / "repositories" / kind / name
            made = Repository.create(folder, kind, name, self._tell, private=private)
            self._repositories[kind, name] = made
            return made

    # -- what is published at each moment

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call it after every change of a ref, before anybody else can make another one.

        What it raises does not disturb the request: it is kept in `complaints`.
        """
        self._listeners.append(listener)

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception as error:  # noqa: BLE001 - an assertion of a test, kept for it
                self.complaints.append(error)

    def overtake(self, repository: Repository, revision: str) -> None:
        """Somebody else commits first: the branch moves, its files stay what they are."""
        with self.lock:
            ref = repository.full_ref(revision) or HEADS + revision
            files = repository.resolve(ref).files
            repository.commit(ref, files, "Somebody was faster", "somebody-else")
