"""From what a branch holds and what it should hold to commits. Pure.

A variant's files are never spread over two commits, so a branch shows each variant as it was or as
it is going to be. Commits that add come before those that only remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbuild.hub.entry import Entry
from kbuild.hub.layout import README, Layout, variant_of
from kbuild.hub.values import Tree

MAX_OPERATIONS = 1000
"""Of one commit: what the Hub advises against exceeding, and the reference tool keeps to."""
MAX_BYTES = 200 << 20
"""Of the contents that may travel inside one commit rather than through LFS or Xet."""
_ALWAYS_LARGE = 10 << 20
"""Bytes from which on a content never travels inside a commit."""
_REST = ""
"""The group of what belongs to no variant."""


@dataclass(frozen=True)
class Changes:
    """The way from one state of a branch to the wanted one."""

    adds: tuple[Entry, ...] = ()
    """New files, and files with new content, in path order."""
    deletes: tuple[str, ...] = ()
    unchanged: tuple[Entry, ...] = ()
    replaced: frozenset[str] = frozenset()
    """Paths among `adds` that are there with another content."""

    def __bool__(self) -> bool:
        return bool(self.adds or self.deletes)

    @property
    def size(self) -> int:
        """Bytes to add."""
        return sum(entry.size for entry in self.adds)


@dataclass(frozen=True)
class Batch:
    """What goes into one commit."""

    adds: tuple[Entry, ...]
    deletes: tuple[str, ...]


def changes(entries: Iterable[Entry], stale: Iterable[str], tree: Tree) -> Changes:
    """What has to be done to a branch whose files are `tree`."""
    adds: list[Entry] = []
    unchanged: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: entry.path):
        (unchanged if entry.is_in(tree.get(entry.path)) else adds).append(entry)
    replaced = frozenset(entry.path for entry in adds if entry.path in tree)
    return Changes(tuple(adds), tuple(sorted(stale)), tuple(unchanged), replaced)


def version_changes(layout: Layout, tree: Tree, *, is_new: bool) -> Changes:
    """What has to be done to the version branch.

    A new one also gets the card, as it would inherit that from `main` once it is there.
    """
    if not is_new:
        return changes(layout.entries, layout.stale(tree, is_new=False), tree)
    stale = (*layout.stale(tree, is_new=True), *layout.stale_charts(tree))
    return changes((*layout.entries, *layout.card), stale, tree)


def card_changes(layout: Layout, tree: Tree) -> Changes:
    """What has to be done to `main`."""
    return changes(layout.card, layout.stale_charts(tree), tree)


def batches(wanted: Changes, limit: int = MAX_OPERATIONS) -> tuple[Batch, ...]:
    """The commits, in order; each within the limits unless one variant alone exceeds them."""
    done: list[Batch] = []
    current = Batch((), ())
    for group in _ordered(_groups(wanted)):
        joined = Batch(current.adds + group.adds, current.deletes + group.deletes)
        if _fits(joined, limit) or not _size(current):
            current = joined
            continue
        done.append(current)
        current = group
    return (*done, current) if _size(current) else tuple(done)


def overtaken(layout: Layout, before: Tree, now: Tree) -> tuple[str, ...]:
    """Paths of this upload that somebody else gave a content that neither was there nor is wanted.

    Args:
        layout: what is uploaded.
        before: the branch when the upload began; empty when there was none.
        now: the branch as it is.
    """
    wanted = {entry.path: entry for entry in layout.entries}
    mine = (path for path in {*before, *now} if layout.owns(path))
    return tuple(sorted(path for path in mine if _is_foreign(path, wanted, before, now)))


def _is_foreign(path: str, wanted: Mapping[str, Entry], before: Tree, now: Tree) -> bool:
    if now.get(path) == before.get(path):
        return False
    if path in wanted:
        return not wanted[path].is_in(now.get(path))
    return path in now


def _groups(wanted: Changes) -> dict[str, Batch]:
    """By variant, and the rest; the card is last of all."""
    adds: dict[str, list[Entry]] = {}
    deletes: dict[str, list[str]] = {}
    for entry in wanted.adds:
        adds.setdefault(_group_of(entry.path), []).append(entry)
    for path in wanted.deletes:
        deletes.setdefault(_group_of(path), []).append(path)
    names = sorted({*adds, *deletes})
    return {n: Batch(tuple(adds.get(n, ())), tuple(deletes.get(n, ()))) for n in names}


def _group_of(path: str) -> str:
    return README if path == README else variant_of(path) or _REST


def _ordered(groups: Mapping[str, Batch]) -> Sequence[Batch]:
    """Variants that gain something, the rest, what only goes, the card."""

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        return name == README, not groups[name].adds, name == _REST, name

    return [part for name in sorted(groups, key=rank) for part in _parts(name, groups[name])]


def _parts(name: str, group: Batch) -> Iterable[Batch]:
    """What belongs to no variant may be spread over commits, file by file."""
    if name != _REST:
        return (group,)
    return (
        *(Batch((entry,), ()) for entry in group.adds),
        *(Batch((), (path,)) for path in group.deletes),
    )


def _fits(batch: Batch, limit: int) -> bool:
    inside = sum(entry.size for entry in batch.adds if entry.size < _ALWAYS_LARGE)
    return _size(batch) <= limit and inside <= MAX_BYTES


def _size(batch: Batch) -> int:
    return len(batch.adds) + len(batch.deletes)
