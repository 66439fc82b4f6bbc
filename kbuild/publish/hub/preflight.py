"""The state of the Hub before an upload, the obstacles, and the changes that it would make.

Nothing on the Hub is changed.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.publish.hub.changes import (
    BranchChanges,
    card_changes,
    split_into_commits,
    version_changes,
)
from kbuild.publish.hub.huggingface import HubClient
from kbuild.publish.hub.layout import (
    BUILD,
    UploadLayout,
    size_of_variants,
    variant_of,
    variants_of,
    versions_of,
)
from kbuild.publish.hub.repository import (
    MAIN,
    AccessDeniedError,
    NotFoundError,
    Refs,
    RemoteFiles,
    RetryPolicy,
)
from kbuild.publish.hub.upload import UploadTarget
from kbuild.system.errors import HubError
from kbuild.system.quantities import size_text


@dataclass(frozen=True)
class UploadObstacle:
    """One thing that is in the way."""

    subject: str
    """The variant, `token`, `repository`, `branch`, `card`, ... that stands in the way."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.subject}: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, Any]:
        """The reason as a JSON object."""
        return {"subject": self.subject, "message": self.message, "hint": self.hint}


class UploadRefusedError(HubError):
    """The upload is refused before anything is sent; carries every reason."""

    def __init__(self, message: str, reasons: Sequence[UploadObstacle]) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)

    def __str__(self) -> str:
        reasons = (textwrap.indent(str(reason), "  ") for reason in _grouped(self.reasons))
        return "\n".join([self.message, *reasons])

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {"reasons": [reason.to_json() for reason in self.reasons]}


def _grouped(reasons: Sequence[UploadObstacle]) -> Iterator[UploadObstacle]:
    """Join obstacles that differ in their subjects alone."""
    subjects: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        subjects.setdefault((reason.message, reason.hint), []).append(reason.subject)
    for (message, hint), (first, *others) in subjects.items():
        yield UploadObstacle(f"{first} and {len(others)} more" if others else first, message, hint)


def raise_for_obstacles(message: str, reasons: Sequence[UploadObstacle]) -> None:
    """Stop when there is a reason to.

    Raises:
        UploadRefusedError: with all of them.
    """
    if reasons:
        raise UploadRefusedError(message, reasons)


@dataclass(frozen=True)
class RemoteState:
    """The state of the Hub before an upload."""

    refs: Refs | None = None
    """None when there is no such repository."""
    tree: RemoteFiles = field(default_factory=dict)
    """Files of the branch; empty when there is none."""
    main: RemoteFiles = field(default_factory=dict)
    reasons: tuple[UploadObstacle, ...] = ()

    @property
    def variants(self) -> frozenset[str]:
        """The variants of the branch."""
        return variants_of(self.tree)

    def has(self, branch: str) -> bool:
        """True when there is such a branch."""
        return self.refs is not None and branch in self.refs.branches


def read_remote_state(hub: HubClient, target: UploadTarget, retry: RetryPolicy) -> RemoteState:
    """Read the account, the branches, and whether the account may write to them.

    Raises:
        HubError: the Hub cannot be asked.
    """
    reasons = list(_permission_obstacles(hub, target, retry))
    try:
        refs = retry.call(lambda: hub.refs(target.repo))
    except NotFoundError:
        if target.pull:
            hint = "is the name right? Upload once without --create-pr to make it"
            message = f"the Hub shows no kernel `{target.repo}`"
            reasons.append(UploadObstacle("repository", message, hint))
        return RemoteState(reasons=tuple(reasons))
    except AccessDeniedError as denied:
        reasons.append(UploadObstacle("repository", denied.message, denied.hint))
        return RemoteState(reasons=tuple(reasons))
    reasons += _repository_obstacles(hub, target, refs, retry)
    trees = {
        name: retry.call(lambda head=refs.branches[name]: hub.tree(target.repo, head))  # type: ignore[misc]
        for name in {target.branch, MAIN} & {*refs.branches}
    }
    return RemoteState(refs, trees.get(target.branch, {}), trees.get(MAIN, {}), tuple(reasons))


def _permission_obstacles(
    hub: HubClient, target: UploadTarget, retry: RetryPolicy
) -> Iterator[UploadObstacle]:
    try:
        account = retry.call(hub.whoami)
    except AccessDeniedError as denied:
        yield UploadObstacle("token", denied.message, denied.hint)
        return
    problem = account.write_problem(target.repo)
    # Anybody may propose a pull request.
    if problem and not target.pull:
        hint = "take a token that may write there, another --repo-id, or --create-pr"
        yield UploadObstacle("token", problem, hint)


def _repository_obstacles(
    hub: HubClient, target: UploadTarget, refs: Refs, retry: RetryPolicy
) -> Iterator[UploadObstacle]:
    if target.pull and target.branch not in refs.branches:
        message = f"`{target.branch}` does not exist, and a pull request needs an existing branch"
        yield UploadObstacle("branch", message, "upload the version without --create-pr first")
    if target.private and not retry.call(lambda: hub.is_private(target.repo)):
        message = f"{target.repo} is public, but --private was given"
        yield UploadObstacle(
            "repository", message, "make it private on its page, or leave out --private"
        )


def disk_space_obstacles(remote: RemoteState, folder: Path) -> Iterator[UploadObstacle]:
    """The obstacle that a build may not fit on the disk, by the size of what is published."""
    needed = size_of_variants(remote.tree, remote.variants)
    free = shutil.disk_usage(folder).free
    if needed > free:
        message = f"the published variants take {needed >> 20} MiB, and {free >> 20} MiB are free"
        yield UploadObstacle("disk", message, f"make room where `{BUILD}/` is")


def version_warnings(remote: RemoteState, target: UploadTarget, version: int) -> Iterator[str]:
    """The warnings about a version, given those that are published."""
    newest = max(versions_of(remote.refs or Refs()), default=version)
    if newest > version and not remote.has(target.branch):
        yield f"{target.repo} has v{newest} already, and this makes `{target.branch}`"


_MAX_LISTED = 12


@dataclass(frozen=True)
class BranchDifference:
    """The changes of one branch."""

    name: str
    is_new: bool
    changes: BranchChanges

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
            "commits": len(split_into_commits(self.changes)),
        }


@dataclass(frozen=True)
class UploadDifference:
    """The changes of a repository."""

    target: UploadTarget
    is_new: bool
    """True when the repository does not exist."""
    branches: tuple[BranchDifference, ...]

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        return {
            "repo_id": self.target.repo.id,
            "branch": self.target.branch,
            "new_repository": self.is_new,
            "branches": [branch.to_json() for branch in self.branches],
        }


def upload_difference(
    target: UploadTarget,
    remote: RemoteState,
    layout: UploadLayout,
) -> UploadDifference:
    """The changes that an upload would make, given the Hub's state."""
    is_new = not remote.has(target.branch)
    start: RemoteFiles = remote.main if is_new else remote.tree
    version = BranchDifference(target.branch, is_new, version_changes(layout, start, is_new=is_new))
    card = BranchDifference(MAIN, remote.refs is None, card_changes(layout, remote.main))
    parts = (version, card) if layout.card else (version,)
    return UploadDifference(target, remote.refs is None, parts)


def difference_lines(difference: UploadDifference) -> Iterator[str]:
    """The difference as text: variants with counts and sizes, other files by name."""
    new = ", which does not exist yet" if difference.is_new else ""
    yield f"{difference.target.repo} (kernel{new})"
    for branch in difference.branches:
        yield from _branch_lines(branch)


def _branch_lines(branch: BranchDifference) -> Iterator[str]:
    wanted = branch.changes
    state = "new branch" if branch.is_new else "nothing to do" if not wanted else ""
    yield f"  {branch.name}{': ' * bool(state)}{state}"
    if not wanted:
        return
    yield from folded_paths(
        "+", [e.path for e in wanted.adds if e.path not in wanted.replaced], wanted
    )
    yield from folded_paths("~", sorted(wanted.replaced), wanted)
    yield from folded_paths("-", wanted.deletes, wanted)
    if wanted.unchanged:
        yield f"    = {_file_count(len(wanted.unchanged))} unchanged"
    commits = len(split_into_commits(wanted))
    yield f"    {size_text(wanted.size)} to send in {commits} commit{'s' * (commits != 1)}"


def folded_paths(mark: str, paths: Iterable[str], wanted: BranchChanges) -> Iterator[str]:
    """One line for each variant with more than a few files, and one for every other file."""
    sizes = {entry.path: entry.size for entry in wanted.adds}
    paths = tuple(paths)
    counts = Counter(map(variant_of, paths))
    shown: set[str] = set()
    for path in paths:
        variant = variant_of(path)
        if not variant or counts[variant] == 1 or counts.total() <= _MAX_LISTED:
            yield f"    {mark} {path}{_size_suffix(sizes, [path])}"
        elif variant not in shown:
            shown.add(variant)
            own = [p for p in paths if variant_of(p) == variant]
            yield f"    {mark} {variant}: {_file_count(len(own))}{_size_suffix(sizes, own)}"


def _size_suffix(sizes: dict[str, int], paths: Sequence[str]) -> str:
    known = [sizes[path] for path in paths if path in sizes]
    return f", {size_text(sum(known))}" if known else ""


def _file_count(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"
