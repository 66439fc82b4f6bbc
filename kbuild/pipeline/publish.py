"""Built variants into a mirror: looked at as for an upload, then published whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.hub.candidate import candidate_of, objections, unaccepted
from kbuild.hub.difference import folded, size_in_words
from kbuild.hub.layout import lay_out
from kbuild.hub.patience import Patience
from kbuild.hub.plan import Changes
from kbuild.hub.preflight import of_changes
from kbuild.hub.published import variants_of
from kbuild.hub.reasons import Reason, refuse
from kbuild.mirror.job import PATIENT_TRIES, Job, Outcome
from kbuild.mirror.places import Place, place_of
from kbuild.mirror.publish import mirror_changes, publish
from kbuild.mirror.read import Kept, kept_at
from kbuild.mirror.store import Store
from kbuild.pipeline.upload.options import UploadOptions, target_of
from kbuild.pipeline.upload.prepare import card_for, of_other_versions, overruled, untraceable
from kbuild.project import Project
from kbuild.surface import Change
from kbuild.versions.compare import interface_changes
from kbuild.versions.model import Version
from kbuild.versions.sources import Built, InMirror

_REFUSED = "nothing was published:"


@dataclass(frozen=True)
class Prepared:
    """A publication that nothing speaks against, not begun yet."""

    job: Job
    before: Kept | None
    """What the mirror has of the version."""
    changes: Changes
    interface: tuple[Change, ...]
    warnings: tuple[str, ...]

    @property
    def place(self) -> Place:
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
        words = "" if self.before else ": new"
        found = [f"{self.place} in {self.job.store.shown}{words}"]
        new = [e.path for e in self.changes.adds if e.path not in self.changes.replaced]
        found += folded("+", new, self.changes)
        found += folded("~", sorted(self.changes.replaced), self.changes)
        found += folded("-", self.changes.deletes, self.changes)
        if self.changes.unchanged:
            found.append(f"    = {len(self.changes.unchanged)} files unchanged")
        found.append(f"    {size_in_words(self.changes.size)} to send")
        return found + [f"    {change}" for change in self.interface]


def prepare_mirror(
    folders: Sequence[Path],
    project: Project | None,
    options: UploadOptions,
    store: Store,
    say: Callable[[str], None],
) -> Prepared:
    """Look at built variants and at the mirror; nothing is changed.

    Raises:
        UploadRefusedError: they may not be published, with every reason.
        UsageError: nobody says as which kernel.
        HubError: the mirror cannot be asked.
    """
    candidates = tuple(candidate_of(folder) for folder in folders)
    version = max((c.metadata.version for c in candidates if c.metadata), default=0)
    target = target_of(options, project, version)
    place, patience = place_of(target.repo, target.branch), Patience(tries=PATIENT_TRIES, say=say)
    before = patience.persist(lambda: kept_at(store, place))
    tree = before.manifest.files if before else {}
    if options.missing:
        candidates = tuple(c for c in candidates if c.name not in variants_of(tree))
    card, card_problems = card_for(folders, project, candidates, target)
    chosen = [candidate.folder for candidate in candidates]
    old = InMirror(store, place.repo, patience).version(place.branch) if before else None
    interface, interface_problems = _interface(chosen, old, version)
    allowed = {"dirty": options.allow_dirty, "noncompliant": options.allow_noncompliant}
    reasons = [
        *objections(candidates, **allowed),
        *unaccepted(candidates, options.accepted),
        *of_other_versions(project, candidates),
        *interface_problems,
        *card_problems,
    ]
    refuse(_REFUSED, reasons)
    layout = lay_out(chosen, project.root if project else None, card)
    job = Job(store, place, layout, patience)
    told = mirror_changes(layout, tree)
    warnings = (*untraceable(candidates), *overruled(candidates))
    return Prepared(job, before, told, interface, warnings)


def publish_prepared(prepared: Prepared) -> Outcome:
    """Carry it out.

    Raises:
        HubError: the mirror refuses or does not answer.
    """
    return publish(prepared.job)


def _interface(
    folders: Sequence[Path], old: Version | None, version: int
) -> tuple[tuple[Change, ...], list[Reason]]:
    """How the interface differs from what this version has been, and what speaks against that."""
    if not folders or old is None:
        return (), []
    built = Built(folders[:1], None, "")
    changes, unread = interface_changes(old, built.version(built.names()[0]))
    if unread:
        return (), [Reason("interface", unread)]
    return changes, list(of_changes(changes, version))
