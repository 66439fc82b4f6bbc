"""The state of the source that a build is made from: commit, dirtiness, and the short unique id.

The id names the op namespace, so it must be the same on every run and differ between published
states. In git it is the tree hash of the project's own folder (an unrelated commit elsewhere in
the repository renames nothing), with `_dirty` when what is built is not what the commit holds:
tracked files or submodules changed, or a source is not in the commit. In a repository without a
commit it is a hash of the index; outside git, a hash of the sources' content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from kbuild.project import DEVELOPMENT_ID
from kbuild.sources.includes import CODE_SUFFIXES, scan_file
from kbuild.system.errors import ConfigError
from kbuild.system.git import Repository
from kbuild.system.processes import Runner
from kbuild.system.sourcetree import SourceTree

ID_LENGTH = 7
_DIRTY = "_dirty"


@dataclass(frozen=True)
class Identity:
    """The state of a project's source."""

    unique_id: str
    """A valid tail of a C and Python identifier, e.g. `1a2b3c4` or `1a2b3c4_dirty`."""
    commit: str | None = None
    """Full object id of HEAD, None without one."""
    dirty: bool = False
    """True when what is built differs from the commit (or from the index without one)."""
    note: str = ""
    """A remark for the user, e.g. why git was not asked."""

    def for_development(self) -> Identity:
        """The same with the id of development builds.

        Another id changes macros, so everything would be compiled again after each commit.
        """
        return replace(self, unique_id=DEVELOPMENT_ID)


def identify(tree: SourceTree, sources: Iterable[str], runner: Runner) -> Identity:
    """The identity of the project at `tree.root`."""
    sources = tuple(sources)
    repository = Repository(tree.root, runner)
    head = repository.ask("rev-parse", "HEAD", "HEAD:./")
    if head is not None:
        commit, folder = head.split()
        dirty = repository.is_changed(".") or bool(repository.uncommitted(sources))
        return Identity(_mark(folder[:ID_LENGTH], dirty=dirty), commit, dirty)
    staged = repository.ask("ls-files", "--stage", "--", ".")
    if staged:
        dirty = repository.is_edited(".") or bool(repository.uncommitted(sources))
        digest = hashlib.sha256(staged.encode()).hexdigest()
        return Identity(_mark(digest[:ID_LENGTH], dirty=dirty), None, dirty)
    hasher = hashlib.sha256()
    for path in sorted(set(sources)):
        if path.endswith(CODE_SUFFIXES):
            with suppress(ConfigError):  # too large; whatever else is wrong is said below
                scan_file(tree, path)  # planning asks for it, and the file is read once for both
        hasher.update(f"{path}\0".encode() + tree.digest(path))
    return Identity(hasher.hexdigest()[:ID_LENGTH], note=_note(repository))


def _note(repository: Repository) -> str:
    refusal = repository.refusal()
    return f"the commit is unknown: {refusal}" if refusal else ""


def _mark(unique_id: str, *, dirty: bool) -> str:
    return f"{unique_id}{_DIRTY}" if dirty else unique_id
