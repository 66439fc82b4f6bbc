"""What an upload would change, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.hub.layout import Layout, variant_of
from kbuild.hub.plan import Changes, batches, card_changes, version_changes
from kbuild.hub.preflight import Standing
from kbuild.hub.target import Target
from kbuild.hub.values import MAIN, Tree
from kbuild.surface import Change

_MANY = 12
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True)
class BranchDifference:
    """What happens to one branch."""

    name: str
    is_new: bool
    changes: Changes

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        new = [e for e in self.changes.adds if e.path not in self.changes.replaced]
        old = [e for e in self.changes.adds if e.path in self.changes.replaced]
        return {
            "branch": self.name,
            "new": self.is_new,
            "added": [{"path": entry.path, "size": entry.size} for entry in new],
            "changed": [{"path": entry.path, "size": entry.size} for entry in old],
            "removed": list(self.changes.deletes),
            "unchanged": len(self.changes.unchanged),
            "commits": len(batches(self.changes)),
        }


@dataclass(frozen=True)
class Difference:
    """What happens to a repository."""

    target: Target
    is_new: bool
    """True when the repository does not exist."""
    branches: tuple[BranchDifference, ...]
    interface: tuple[Change, ...] = ()
    """How the Python package differs from the published one."""

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        return {
            "repo_id": self.target.repo.id,
            "branch": self.target.branch,
            "new_repository": self.is_new,
            "branches": [branch.to_json() for branch in self.branches],
            "interface": [change.to_json() for change in self.interface],
        }


def difference(
    target: Target, standing: Standing, layout: Layout, interface: Sequence[Change] = ()
) -> Difference:
    """What an upload would do, given what the Hub has."""
    is_new = not standing.has(target.branch)
    start: Tree = standing.main if is_new else standing.tree
    version = BranchDifference(target.branch, is_new, version_changes(layout, start, is_new=is_new))
    card = BranchDifference(MAIN, standing.refs is None, card_changes(layout, standing.main))
    parts = (version, card) if layout.card else (version,)
    return Difference(target, standing.refs is None, parts, tuple(interface))


def in_lines(told: Difference) -> Iterator[str]:
    """The difference as text: variants with counts and sizes, other files by name."""
    new = ", which does not exist yet" if told.is_new else ""
    yield f"{told.target.repo} ({told.target.repo.kind}{new})"
    for branch in told.branches:
        yield from _branch(branch)
    if told.interface:
        yield "  interface"
        yield from (f"    {_mark(change)} {change}{_breaks(change)}" for change in told.interface)


def _branch(branch: BranchDifference) -> Iterator[str]:
    wanted = branch.changes
    words = "new branch" if branch.is_new else "nothing to do" if not wanted else ""
    yield f"  {branch.name}{': ' * bool(words)}{words}"
    if not wanted:
        return
    yield from folded("+", [e.path for e in wanted.adds if e.path not in wanted.replaced], wanted)
    yield from folded("~", sorted(wanted.replaced), wanted)
    yield from folded("-", wanted.deletes, wanted)
    if wanted.unchanged:
        yield f"    = {_files(len(wanted.unchanged))} unchanged"
    commits = len(batches(wanted))
    yield f"    {size_in_words(wanted.size)} to send in {commits} commit{'s' * (commits != 1)}"


def folded(mark: str, paths: Iterable[str], wanted: Changes) -> Iterator[str]:
    """One line for each variant with more than a few files, and one for every other file."""
    sizes = {entry.path: entry.size for entry in wanted.adds}
    paths = tuple(paths)
    counts = Counter(map(variant_of, paths))
    told: set[str] = set()
    for path in paths:
        variant = variant_of(path)
        if not variant or counts[variant] == 1 or counts.total() <= _MANY:
            yield f"    {mark} {path}{_sized(sizes, [path])}"
        elif variant not in told:
            told.add(variant)
            own = [p for p in paths if variant_of(p) == variant]
            yield f"    {mark} {variant}: {_files(len(own))}{_sized(sizes, own)}"


def _sized(sizes: dict[str, int], paths: Sequence[str]) -> str:
    known = [sizes[path] for path in paths if path in sizes]
    return f", {size_in_words(sum(known))}" if known else ""


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def size_in_words(size: int) -> str:
    """`1.4 MiB`."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _mark(change: Change) -> str:
    return {"added": "+", "removed": "-"}.get(change.kind, "~")


def _breaks(change: Change) -> str:
    return " (breaks callers)" if change.breaking else ""
