"""Built variants into a mirror: looked at as for an upload, then published whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.hub.candidate import (
    UploadCandidate,
    examine_candidate,
    unaccepted_licences,
    upload_obstacles,
)
from kbuild.hub.changes import BranchChanges
from kbuild.hub.layout import read_layout, variants_of
from kbuild.hub.preflight import (
    UploadObstacle,
    api_obstacles,
    folded_paths,
    format_size,
    raise_for_obstacles,
)
from kbuild.hub.repository import RetryPolicy
from kbuild.mirror.layout import PublishedVersion, VersionPaths, read_version, version_paths
from kbuild.mirror.publish import STORE_TRIES, PublishResult, PublishRun, mirror_changes, publish
from kbuild.mirror.store import MirrorStore
from kbuild.pipeline.options import UploadOptions
from kbuild.pipeline.upload import (
    candidate_card,
    overruled_warnings,
    provenance_warnings,
    target_of,
    version_mismatches,
)
from kbuild.project import Project
from kbuild.public_api.compare import ApiChange
from kbuild.versions.difference import interface_changes
from kbuild.versions.sources import BuiltVersions, KernelVersion, MirrorVersions

_REFUSED = "nothing was published:"


@dataclass(frozen=True)
class PreparedPublication:
    """A publication that nothing speaks against, not begun yet."""

    job: PublishRun
    before: PublishedVersion | None
    """What the mirror has of the version."""
    changes: BranchChanges
    interface: tuple[ApiChange, ...]
    warnings: tuple[str, ...]

    @property
    def place(self) -> VersionPaths:
        """Which version."""
        return self.job.place

    def to_json(self) -> dict[str, Any]:
        """What would change, as a JSON object."""
        adds, replaced = self.changes.adds, self.changes.replaced
        return {
            "mirror": self.job.store.shown,
            "repo_id": self.place.repo.id,
            "branch": self.place.branch,
            "new": self.before is None,
            "added": [{"path": e.path, "size": e.size} for e in adds if e.path not in replaced],
            "changed": [{"path": e.path, "size": e.size} for e in adds if e.path in replaced],
            "removed": list(self.changes.deletes),
            "unchanged": len(self.changes.unchanged),
            "interface": [change.to_json() for change in self.interface],
        }

    def lines(self) -> list[str]:
        """What would change, for people."""
        suffix = "" if self.before else ": new"
        lines = [f"{self.place} in {self.job.store.shown}{suffix}"]
        new = [e.path for e in self.changes.adds if e.path not in self.changes.replaced]
        lines += folded_paths("+", new, self.changes)
        lines += folded_paths("~", sorted(self.changes.replaced), self.changes)
        lines += folded_paths("-", self.changes.deletes, self.changes)
        if self.changes.unchanged:
            lines.append(f"    = {len(self.changes.unchanged)} files unchanged")
        lines.append(f"    {format_size(self.changes.size)} to send")
        return lines + [f"    {change}" for change in self.interface]


def prepare_publication(
    folders: Sequence[Path],
    project: Project | None,
    options: UploadOptions,
    store: MirrorStore,
    say: Callable[[str], None],
) -> PreparedPublication:
    """Look at built variants and at the mirror; nothing is changed.

    Raises:
        UploadRefusedError: they may not be published, with every reason.
        UsageError: the kernel is not named.
        HubError: the mirror cannot be asked.
    """
    candidates = tuple(examine_candidate(folder) for folder in folders)
    version = max((c.metadata.version for c in candidates if c.metadata), default=0)
    target = target_of(options, project, version)
    place, retry = (
        version_paths(target.repo, target.branch),
        RetryPolicy(tries=STORE_TRIES, say=say),
    )
    before = retry.call(lambda: read_version(store, place))
    tree = before.manifest.files if before else {}
    if options.missing:
        candidates = tuple(c for c in candidates if c.name not in variants_of(tree))
    card, card_problems = candidate_card(folders, project, candidates, target)
    chosen = [candidate.folder for candidate in candidates]
    old = MirrorVersions(store, place.repo, retry).version(place.branch) if before else None
    interface, interface_problems = _interface(chosen, old, version)
    allowed = {"dirty": options.allow_dirty, "noncompliant": options.allow_noncompliant}
    reasons = [
        *upload_obstacles(candidates, **allowed),
        *([] if options.allow_dirty else _unknown_sources(candidates)),
        *unaccepted_licences(candidates, options.accepted),
        *version_mismatches(project, candidates),
        *interface_problems,
        *card_problems,
    ]
    raise_for_obstacles(_REFUSED, reasons)
    layout = read_layout(chosen, project.root if project else None, card)
    job = PublishRun(store, place, layout, retry)
    changes = mirror_changes(layout, tree)
    warnings = (*provenance_warnings(candidates), *overruled_warnings(candidates))
    return PreparedPublication(job, before, changes, interface, warnings)


def _unknown_sources(candidates: Sequence[UploadCandidate]) -> Iterator[UploadObstacle]:
    """Variants that do not say which commit they were made from."""
    for candidate in candidates:
        if not candidate.has_source:
            message = "it does not record the commit that it was built from"
            hint = "build it in a git repository, or give --allow-dirty"
            yield UploadObstacle(candidate.name, message, hint)


def publish_prepared(prepared: PreparedPublication) -> PublishResult:
    """Carry it out.

    Raises:
        HubError: the mirror refuses or does not answer.
    """
    return publish(prepared.job)


def _interface(
    folders: Sequence[Path], old: KernelVersion | None, version: int
) -> tuple[tuple[ApiChange, ...], list[UploadObstacle]]:
    """How the interface differs from what this version has been, and what speaks against that."""
    if not folders or old is None:
        return (), []
    built = BuiltVersions(folders[:1], None, "")
    changes, unread = interface_changes(old, built.version(built.names()[0]))
    if unread:
        return (), [UploadObstacle("interface", unread)]
    return changes, list(api_obstacles(changes, version))
