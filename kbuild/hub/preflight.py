"""What can be known of an upload before anything is built or sent: may it be done, and is it wise.

Whatever is in the way is told at once. Nothing on the Hub is changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.hub.entry import entry_of
from kbuild.hub.layout import BUILD
from kbuild.hub.patience import Patience
from kbuild.hub.published import published_surface, size_of, variants_of, versions_of
from kbuild.hub.reasons import Reason
from kbuild.hub.remote import Denied, Hub, Missing
from kbuild.hub.target import Target
from kbuild.hub.values import MAIN, Refs, Tree
from kbuild.surface import Change, Surface, compare

_GENERATED = "_ops.py"
_BUMP = "raise `general.version`, so that those who load v{version} keep what they have"


@dataclass(frozen=True)
class Standing:
    """What the Hub says before an upload."""

    refs: Refs | None = None
    """None when there is no such repository."""
    tree: Tree = field(default_factory=dict)
    """Of the branch; empty when there is none."""
    main: Tree = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()

    @property
    def variants(self) -> frozenset[str]:
        """Those that the branch has."""
        return variants_of(self.tree)

    def has(self, branch: str) -> bool:
        """Whether there is such a branch."""
        return self.refs is not None and branch in self.refs.branches

    def latest_before(self, version: int) -> str | None:
        """The commit of the newest published version that is older; None without one."""
        older = [c for n, c in versions_of(self.refs or Refs()).items() if n < version]
        return older[-1] if older else None


def look(hub: Hub, target: Target, patience: Patience) -> Standing:
    """Ask who is there, what there is, and whether the one may change the other.

    Raises:
        HubError: the Hub cannot be asked.
    """
    reasons = list(_rights(hub, target, patience))
    try:
        refs = patience.persist(lambda: hub.refs(target.repo))
    except Missing:
        reasons += _of_new_repository(target)
        return Standing(reasons=tuple(reasons))
    except Denied as denied:
        reasons.append(Reason("repository", denied.message, denied.hint))
        return Standing(reasons=tuple(reasons))
    reasons += _of_repository(hub, target, refs, patience)
    trees = {
        name: patience.persist(lambda head=refs.branches[name]: hub.tree(target.repo, head))  # type: ignore[misc]
        for name in {target.branch, MAIN} & {*refs.branches}
    }
    return Standing(refs, trees.get(target.branch, {}), trees.get(MAIN, {}), tuple(reasons))


def _rights(hub: Hub, target: Target, patience: Patience) -> Iterator[Reason]:
    try:
        account = patience.persist(hub.whoami)
    except Denied as denied:
        yield Reason("token", denied.message, denied.hint)
        return
    problem = account.why_not(target.repo)
    if problem and not target.pull:
        hint = "take a token that may write there, another --repo-id, or --create-pr"
        yield Reason("token", problem, hint)


def _of_new_repository(target: Target) -> Iterator[Reason]:
    if target.pull:
        hint = "is the name right? Upload once without --create-pr to make it"
        yield Reason("repository", f"the Hub shows no {target.repo.kind} `{target.repo}`", hint)


def _of_repository(hub: Hub, target: Target, refs: Refs, patience: Patience) -> Iterator[Reason]:
    if target.pull and target.branch not in refs.branches:
        words = f"`{target.branch}` does not exist, and pull requests go to what exists"
        yield Reason("branch", words, "upload the version without --create-pr first")
    if target.private and not patience.persist(lambda: hub.is_private(target.repo)):
        words = f"{target.repo} is public, and --private says that it should not be"
        yield Reason("repository", words, "make it private on its page, or leave out --private")


def api_changes(
    hub: Hub, target: Target, commit: str, package: Path, surface: Surface, *, own: str
) -> tuple[Change, ...]:
    """How a package differs from what a published commit offers; none when its files are the same.

    Raises:
        HubError: the Hub cannot be asked.
    """
    tree = hub.tree(target.repo, commit)
    if _is_same(tree, package):
        return ()
    before = published_surface(hub, target.repo, commit, own=own)
    return () if before is None else compare(before, surface)


def of_changes(changes: Sequence[Change], version: int) -> Iterator[Reason]:
    """Why an interface may not replace the published one under the same version."""
    for change in changes:
        if change.breaking:
            yield Reason("interface", f"{change}: breaks callers", _BUMP.format(version=version))


def of_space(standing: Standing, folder: Path) -> Iterator[Reason]:
    """Why a build may not fit on the disk, judged by what is published."""
    needed = size_of(standing.tree, standing.variants)
    free = shutil.disk_usage(folder).free
    if needed > free:
        words = f"the published variants take {needed >> 20} MiB, and {free >> 20} MiB are free"
        yield Reason("disk", words, f"make room where `{BUILD}/` is")


def _is_same(tree: Tree, package: Path) -> bool:
    """True when some variant of the tree has exactly the Python files of a package."""
    own = {
        path.relative_to(package).as_posix(): entry_of(path.name, path)
        for path in package.rglob("*.py")
        if path.is_file() and path.name != _GENERATED and "__pycache__" not in path.parts
    }
    variant = min(variants_of(tree), default="")
    top = f"{BUILD}/{variant}/"
    theirs = {
        path.removeprefix(top): file
        for path, file in tree.items()
        if path.startswith(top) and path.endswith(".py") and path != f"{top}{_GENERATED}"
    }
    return own.keys() == theirs.keys() and all(own[p].is_in(theirs[p]) for p in own)


def of_versions(standing: Standing, target: Target, version: int) -> Iterator[str]:
    """What is odd about the version, given those that are published."""
    newest = max(versions_of(standing.refs or Refs()), default=version)
    if newest > version and not standing.has(target.branch):
        yield f"{target.repo} has v{newest} already, and this makes `{target.branch}`"
