"""Turns what a branch holds and what it should hold into commits; pure functions.

A variant's files are never spread over two commits, so a branch shows each variant as it was or as
it is going to be. Commits that add come before those that only remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbuild.publish.hub.layout import README, UploadLayout, variant_of
from kbuild.publish.hub.repository import RemoteFiles, UploadFile

MAX_OPERATIONS = 1000
"""Operations of one commit: the Hub advises against more, and the reference tool keeps to it."""
MAX_BYTES = 200 << 20
"""Bytes that may travel inside one commit rather than through LFS or Xet."""
_ALWAYS_LARGE = 10 << 20
"""Bytes from which on a content never travels inside a commit."""
_NO_VARIANT = ""


@dataclass(frozen=True)
class BranchChanges:
    """The way from one state of a branch to the wanted one."""

    adds: tuple[UploadFile, ...] = ()
    """New files, and files with new content, in path order."""
    deletes: tuple[str, ...] = ()
    unchanged: tuple[UploadFile, ...] = ()
    replaced: frozenset[str] = frozenset()
    """Paths among `adds` that are there with another content."""

    def __bool__(self) -> bool:
        return bool(self.adds or self.deletes)

    @property
    def size(self) -> int:
        """Bytes to add."""
        return sum(entry.size for entry in self.adds)


@dataclass(frozen=True)
class CommitBatch:
    """The operations of one commit."""

    adds: tuple[UploadFile, ...]
    deletes: tuple[str, ...]


def branch_changes(
    entries: Iterable[UploadFile], stale: Iterable[str], tree: RemoteFiles
) -> BranchChanges:
    """The changes of a branch whose files are `tree`."""
    adds: list[UploadFile] = []
    unchanged: list[UploadFile] = []
    for entry in sorted(entries, key=lambda entry: entry.path):
        (unchanged if entry.is_in(tree.get(entry.path)) else adds).append(entry)
    replaced = frozenset(entry.path for entry in adds if entry.path in tree)
    return BranchChanges(tuple(adds), tuple(sorted(stale)), tuple(unchanged), replaced)


def version_changes(layout: UploadLayout, tree: RemoteFiles, *, is_new: bool) -> BranchChanges:
    """The changes of the version branch.

    A new one also gets the card, as it would inherit that from `main` once it is there.
    """
    if not is_new:
        return branch_changes(layout.entries, layout.stale(tree, is_new=False), tree)
    stale = layout.stale(tree, is_new=True)
    return branch_changes((*layout.entries, *layout.card), stale, tree)


def card_changes(layout: UploadLayout, tree: RemoteFiles) -> BranchChanges:
    """The changes of `main`."""
    return branch_changes(layout.card, (), tree)


def split_into_commits(
    wanted: BranchChanges, limit: int = MAX_OPERATIONS
) -> tuple[CommitBatch, ...]:
    """The commits, in order; each within the limits unless one variant alone exceeds them."""
    done: list[CommitBatch] = []
    current = CommitBatch((), ())
    # By variant, and the rest; the card is last of all.
    adds: dict[str, list[UploadFile]] = {}
    deletes: dict[str, list[str]] = {}
    for entry in wanted.adds:
        adds.setdefault(_group_of(entry.path), []).append(entry)
    for path in wanted.deletes:
        deletes.setdefault(_group_of(path), []).append(path)
    names = sorted({*adds, *deletes})
    for group in _ordered_groups(
        {n: CommitBatch(tuple(adds.get(n, ())), tuple(deletes.get(n, ()))) for n in names}
    ):
        joined = CommitBatch(current.adds + group.adds, current.deletes + group.deletes)
        # Into an empty commit, a variant goes even if it alone exceeds the limits.
        if _fits(joined, limit) or not _size(current):
            current = joined
            continue
        done.append(current)
        current = group
    return (*done, current) if _size(current) else tuple(done)


def conflicting_paths(
    layout: UploadLayout, before: RemoteFiles, now: RemoteFiles
) -> tuple[str, ...]:
    """Paths of this upload that somebody else gave a content that neither was there nor is wanted.

    Args:
        layout: what is uploaded.
        before: the branch when the upload began; empty when there was none.
        now: the branch as it is.
    """
    wanted = {entry.path: entry for entry in layout.entries}
    mine = (path for path in {*before, *now} if layout.owns(path))
    return tuple(sorted(path for path in mine if _is_foreign(path, wanted, before, now)))


def _is_foreign(
    path: str, wanted: Mapping[str, UploadFile], before: RemoteFiles, now: RemoteFiles
) -> bool:
    if now.get(path) == before.get(path):
        return False
    if path in wanted:
        return not wanted[path].is_in(now.get(path))
    return path in now


def _group_of(path: str) -> str:
    return README if path == README else variant_of(path) or _NO_VARIANT


def _ordered_groups(groups: Mapping[str, CommitBatch]) -> Sequence[CommitBatch]:
    """Variants that gain something, the rest, what only goes, the card."""

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        return name == README, not groups[name].adds, name == _NO_VARIANT, name

    return [part for name in sorted(groups, key=rank) for part in _split_group(name, groups[name])]


def _split_group(name: str, group: CommitBatch) -> Iterable[CommitBatch]:
    """Split files that belong to no variant over commits, one by one."""
    if name != _NO_VARIANT:
        return (group,)
    return (
        *(CommitBatch((entry,), ()) for entry in group.adds),
        *(CommitBatch((), (path,)) for path in group.deletes),
    )


def _fits(batch: CommitBatch, limit: int) -> bool:
    inside = sum(entry.size for entry in batch.adds if entry.size < _ALWAYS_LARGE)
    return _size(batch) <= limit and inside <= MAX_BYTES


def _size(batch: CommitBatch) -> int:
    return len(batch.adds) + len(batch.deletes)
