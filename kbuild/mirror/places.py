"""Names in a mirror. Pure.

    kernels--org--relu/refs/v1                    40 hex digits: which snapshot the version is
    kernels--org--relu/snapshots/<id>/build/...   the version's files, and their manifest
    org/relu/v1                                   a link to that snapshot, where there are links

The first two are what `huggingface_hub` calls a cache: with `KERNELS_CACHE` naming the mirror and
`HF_HUB_OFFLINE` set, the client's `get_kernel` loads from it. The third is for people, and for
`LOCAL_KERNELS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbuild.errors import UsageError
from kbuild.hub.values import Repo

MANIFEST = "kbuild-manifest.json"
_PREFIX = "kernels--"
_ID = re.compile(r"[0-9a-f]{40}")
_BRANCH = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*", flags=re.ASCII)


@dataclass(frozen=True)
class Place:
    """One version of one kernel."""

    repo: Repo
    branch: str

    @property
    def ref(self) -> str:
        """The file that says which snapshot it is."""
        return f"{refs_of(self.repo)}/{self.branch}"

    @property
    def link(self) -> str:
        """Where people and `LOCAL_KERNELS` look for it."""
        return f"{self.repo.id}/{self.branch}"

    def snapshot(self, name: str) -> str:
        """The folder of a snapshot."""
        return f"{snapshots_of(self.repo)}/{name}"

    def target(self, name: str) -> str:
        """What the link says: the snapshot, seen from the link's folder."""
        up = "../" * self.link.count("/")
        return f"{up}{self.snapshot(name)}"

    def __str__(self) -> str:
        return f"{self.repo}@{self.branch}"


def place_of(repo: Repo, branch: str) -> Place:
    """The version of that name.

    Raises:
        UsageError: a mirror could not have a file of that name.
    """
    if not _BRANCH.fullmatch(branch) or ".." in branch:
        raise UsageError(f"`{branch}` cannot be a version in a mirror", hint="write e.g. v1")
    return Place(repo, branch)


def folder_of(repo: Repo) -> str:
    """A kernel's folder, named as `huggingface_hub` names it."""
    return f"{_PREFIX}{repo.id.replace('/', '--')}"


def refs_of(repo: Repo) -> str:
    """The folder that says which versions there are."""
    return f"{folder_of(repo)}/refs"


def snapshots_of(repo: Repo) -> str:
    """The folder with the files of all versions."""
    return f"{folder_of(repo)}/snapshots"


def repo_in(name: str) -> Repo | None:
    """The kernel whose folder has that name; None for all other folders."""
    owner, dashes, kernel = name.removeprefix(_PREFIX).partition("--")
    if not name.startswith(_PREFIX) or not (owner and dashes and kernel):
        return None
    return Repo(f"{owner}/{kernel}")


def is_snapshot(name: str) -> bool:
    """True for the name of a snapshot."""
    return _ID.fullmatch(name) is not None
