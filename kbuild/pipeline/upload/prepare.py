"""Built variants, looked at together with what the Hub has; then the upload itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.config.suggest import printable
from kbuild.hub.candidate import Candidate, candidate_of, objections, unaccepted
from kbuild.hub.difference import Difference, difference
from kbuild.hub.layout import Layout, lay_out
from kbuild.hub.preflight import Standing, look, of_versions
from kbuild.hub.reasons import Reason, refuse
from kbuild.hub.target import Job, Outcome, Target
from kbuild.hub.upload import upload
from kbuild.pipeline.options import Doors
from kbuild.pipeline.upload.cards import card_of
from kbuild.pipeline.upload.interface import Interface, interface_of
from kbuild.pipeline.upload.options import Desk, UploadOptions, target_of
from kbuild.project import Project

_REFUSED = "nothing was uploaded:"


@dataclass(frozen=True)
class Prepared:
    """An upload that nothing speaks against, not begun yet."""

    target: Target
    layout: Layout
    difference: Difference
    warnings: tuple[str, ...] = ()


def prepare(
    folders: Sequence[Path], project: Project | None, options: UploadOptions, desk: Desk
) -> Prepared:
    """Look at built variants and at the Hub; nothing is changed.

    Raises:
        UploadRefusedError: they may not be uploaded, with every reason.
        UsageError: nobody says where to.
        HubError: the Hub cannot be asked.
    """
    candidates = tuple(candidate_of(folder) for folder in folders)
    version = max((c.metadata.version for c in candidates if c.metadata), default=0)
    target = target_of(options, project, version)
    standing = look(desk.hub, target, desk.patience)
    if options.missing:
        candidates = tuple(c for c in candidates if c.name not in standing.variants)
    card, card_problems = card_for(folders, project, candidates, target)
    interface = _interface(candidates, target, standing, desk, version)
    allowed = {"dirty": options.allow_dirty, "noncompliant": options.allow_noncompliant}
    reasons = [
        *standing.reasons,
        *objections(candidates, **allowed),
        *unaccepted(candidates, options.accepted),
        *of_other_versions(project, candidates),
        *interface.reasons(version),
        *card_problems,
    ]
    refuse(_REFUSED, reasons)
    layout = lay_out([c.folder for c in candidates], project.root if project else None, card)
    told = difference(target, standing, layout, interface.changes)
    warnings = [
        *of_versions(standing, target, version),
        *untraceable(candidates),
        *overruled(candidates),
    ]
    if not card:
        warnings.append("there is no card: the repository's page will say nothing of the kernel")
    return Prepared(target, layout, told, tuple(warnings))


def send(prepared: Prepared, desk: Desk, doors: Doors) -> Outcome:
    """Carry it out.

    Raises:
        HubError: the Hub refuses, is not reached, or somebody else changes the same variants.
    """
    return upload(Job(desk.hub, prepared.target, prepared.layout, desk.patience, doors.ui.say))


def _interface(
    candidates: Sequence[Candidate], target: Target, standing: Standing, desk: Desk, version: int
) -> Interface:
    for candidate in candidates:
        if candidate.metadata:
            own = candidate.metadata.python_name
            return interface_of(candidate.folder, target, standing, desk, own=own, version=version)
    return Interface()


def card_for(
    folders: Sequence[Path],
    project: Project | None,
    candidates: Sequence[Candidate],
    target: Target,
) -> tuple[dict[str, bytes], tuple[Reason, ...]]:
    """The card of what was looked at, and why it may not be published."""
    faults = {c.name: c.findings[0].what for c in candidates if not c.compliant}
    dirty = [c.name for c in candidates if c.dirty]
    told = {c.name: c.overruled for c in candidates if c.overruled}
    build = folders[0].parent
    return card_of(build, project, target, faults=faults, dirty=dirty, overruled=told)


def of_other_versions(project: Project | None, candidates: Sequence[Candidate]) -> Iterator[Reason]:
    """Variants of another version than the project's."""
    now = project.file.general.version if project else None
    for candidate in candidates:
        made = candidate.metadata
        if now is not None and made and made.version != now:
            words = f"it is of version {made.version}, `build.toml` says {now}"
            yield Reason(candidate.name, words, "build it again, or move it out of the folder")


def untraceable(candidates: Sequence[Candidate]) -> Iterator[str]:
    """What nobody could build again, in words."""
    for candidate in candidates:
        made = candidate.metadata.provenance if candidate.metadata else None
        if made is None or made.kernel is None:
            yield f"{candidate.name}: nothing says which commit it was built from"
        elif made.builder.git and made.builder.git.dirty:
            yield f"{candidate.name}: built by a kbuild whose own source was changed"


def overruled(candidates: Sequence[Candidate]) -> Iterator[str]:
    """The checks that found errors which the author overruled, in words."""
    for candidate in candidates:
        for check, reason in candidate.overruled.items():
            words = f"the errors of `{check}` are overruled: {reason}"
            yield f"{candidate.name}: {printable(words)}"
