"""Uploads built variants to the Hub: preflight, card, comparison with what is published."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kbuild.plan.project import BUILD_FILE, Project, open_project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity, Planner
from kbuild.project.config.issue import printable
from kbuild.publish.card import CARD, CardError
from kbuild.publish.card.fill import read_card
from kbuild.publish.card.markdown import remove_digest_line, with_notice
from kbuild.publish.card.public_api import find_package
from kbuild.publish.card.refresh import CardDestination, make_project_card
from kbuild.publish.card.sections import UNFINISHED
from kbuild.publish.hub.breaking_changes import breaking_change_warnings
from kbuild.publish.hub.candidate import (
    UploadCandidate,
    examine_candidate,
    unaccepted_licences,
    upload_obstacles,
)
from kbuild.publish.hub.huggingface import HubClient
from kbuild.publish.hub.layout import BUILD, README, UploadLayout, read_layout
from kbuild.publish.hub.preflight import (
    RemoteState,
    UploadDifference,
    UploadObstacle,
    disk_space_obstacles,
    raise_for_obstacles,
    read_remote_state,
    upload_difference,
    version_warnings,
)
from kbuild.publish.hub.repository import Repo, RetryPolicy
from kbuild.publish.hub.upload import UploadResult, UploadRun, UploadTarget, upload
from kbuild.publish.upload_options import UploadOptions
from kbuild.system.errors import ConfigError, KbuildError, UsageError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree

_REPO = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", flags=re.ASCII)


@dataclass(frozen=True)
class HubSession:
    """The client of the Hub, and its policy of retries."""

    hub: HubClient
    retry: RetryPolicy


def target_of(options: UploadOptions, project: Project | None, version: int) -> UploadTarget:
    """The destination of an upload.

    Raises:
        UsageError: no repository is named, or its name is not valid.
    """
    hub = project.file.general.hub if project else None
    name = options.repo_id or (hub.repo_id if hub else None)
    if not name:
        hint = 'give --repo-id OWNER/NAME, or write `repo-id = "..."` in `[general.hub]`'
        raise UsageError("no repository is named", hint=hint)
    if not _REPO.fullmatch(name):
        raise UsageError(f"`{name}` is not a repository", hint="write OWNER/NAME")
    branch = options.branch or (hub.branch if hub else None) or f"v{version}"
    repo = Repo(name)
    return UploadTarget(repo, branch, private=options.private, pull=options.create_pr)


def project_in(folder: Path, options: UploadOptions) -> Project | None:
    """The project of a folder; a broken one matters only when it has to say where to upload to.

    Raises:
        ConfigError: `build.toml` is wrong, and `--repo-id` was not given.
    """
    if not (folder / BUILD_FILE).is_file():
        return None
    try:
        return open_project(folder)
    except ConfigError:
        if options.repo_id:
            return None
        raise


def _breaking_changes(
    package: Path | None,
    target: UploadTarget,
    remote: RemoteState,
    session: HubSession,
    name: str,
) -> tuple[str, ...]:
    """Warnings on changes that break callers of the same version, where that is published.

    Raises:
        HubError: the Hub cannot be asked.
    """
    commit = remote.refs.branches.get(target.branch) if remote.refs else None
    if commit is None or package is None:
        return ()
    return session.retry.call(
        lambda: tuple(breaking_change_warnings(session.hub, target.repo, commit, package, name))
    )


_UNFINISHED_HINT = "write those parts of CARD.md, or take them out"
CardFiles = dict[str, bytes]


def card_files_for(
    build: Path,
    project: Project | None,
    target: UploadTarget,
    *,
    faults: Mapping[str, str] | None = None,
    dirty: Sequence[str] = (),
    overruled: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[CardFiles, tuple[UploadObstacle, ...]]:
    """The card with its remarks on some variants, and the obstacles to publishing it.

    Args:
        build: the folder with the variants, and perhaps a card.
        project: whose card is filled; None takes what lies beside the variants.
        target: where it is shown.
        faults: variants that fail a check, with messages.
        dirty: variants whose source is in no commit.
        overruled: reasons by check that was overruled, by variant.
    """
    notice = partial(
        with_notice, dirty=dirty, noncompliant=tuple(faults or {}), overruled=overruled
    )
    try:
        return _card_files(build, project, target, faults or {}, notice), ()
    except KbuildError as error:
        return {}, (UploadObstacle("card", error.message, error.hint),)
    except OSError as error:
        return {}, (UploadObstacle("card", f"it cannot be read: {error}"),)


def _card_files(
    build: Path,
    project: Project | None,
    target: UploadTarget,
    faults: Mapping[str, str],
    notice: Callable[[str], str],
) -> CardFiles:
    template = _template(build, project)
    if project is None or template is None:
        return _unfilled_card(build, notice)
    publication = CardDestination(target.repo.id, target.branch, faults)
    card = make_project_card(project, build, template=template, publication=publication)
    return {README: card.encode()}


def _template(build: Path, project: Project | None) -> str | None:
    """The template: a card of kbuild's that was edited beside the variants, else the project's.

    None for a card that another tool has filled, and where there is none.
    """
    beside = build / CARD
    if beside.is_file():
        text = read_card(beside)
        known = remove_digest_line(text)
        if known is None:
            return None
        if known[1]:
            return text
    own = project.root / CARD if project else beside
    return read_card(own) if own.is_file() else None


def _unfilled_card(build: Path, notice: Callable[[str], str]) -> CardFiles:
    card = build / CARD
    if not card.is_file():
        return {}
    text = read_card(card)
    lines = [str(n) for n, line in enumerate(text.splitlines(), 1) if UNFINISHED.search(line)]
    if lines:
        message = f"{CARD}: something is still to be done (line {', '.join(lines)})"
        raise CardError(message, hint=_UNFINISHED_HINT)
    return {README: notice(text).encode()}


_NOTHING_BUILT = "nothing was built or uploaded:"


@dataclass(frozen=True)
class Preflight:
    """The target of a build and upload, and its variants."""

    target: UploadTarget
    variants: tuple[str, ...]
    """Variants to build: the selected ones, with `--missing` without those that are there."""
    published: frozenset[str]


def preflight(
    project: Project,
    options: UploadOptions,
    selection: Selection,
    session: HubSession,
    services: Services,
    *,
    identity: Identity | None = None,
) -> Preflight:
    """Check that the result of a build could be uploaded.

    Raises:
        UploadRefusedError: it could not be, with every reason.
        HubError: the Hub cannot be asked.
    """
    version = project.file.general.version
    target = target_of(options, project, version)
    remote = read_remote_state(session.hub, target, session.retry)
    package = find_package(project.root, project.python_name)
    reasons = [
        *remote.reasons,
        *_project_reasons(project, selection, options, services, identity),
        *card_files_for(project.root / BUILD, project, target)[1],
        *disk_space_obstacles(remote, project.root),
    ]
    raise_for_obstacles(_NOTHING_BUILT, reasons)
    warnings = (
        *version_warnings(remote, target, version),
        *_breaking_changes(package, target, remote, session, project.python_name),
    )
    for warning in warnings:
        services.ui.warn(warning)
    there = remote.variants if options.missing else ()
    chosen = (str(choice.variant) for choice in select_variants(project, selection))
    wanted = tuple(name for name in chosen if name not in there)
    return Preflight(target, wanted, remote.variants)


def _project_reasons(
    project: Project,
    selection: Selection,
    options: UploadOptions,
    services: Services,
    identity: Identity | None,
) -> Iterator[UploadObstacle]:
    if not project.file.general.license.strip():
        yield UploadObstacle("licence", "`general.license` is empty", "write an SPDX identifier")
    if not options.allow_dirty:
        planner = Planner(project, SourceTree(project.root), services.runner, identity)
        plans = planner.select(selection)
        if any(plan.commit and plan.dirty for plan in plans):
            message = "what would be built differs from the commit"
            yield UploadObstacle("sources", message, "commit first, or give --allow-dirty")


_NOTHING_UPLOADED = "nothing was uploaded:"


@dataclass(frozen=True)
class PreparedUpload:
    """An upload that nothing speaks against, not begun yet."""

    target: UploadTarget
    layout: UploadLayout
    difference: UploadDifference
    warnings: tuple[str, ...] = ()


def prepare_upload(
    folders: Sequence[Path], project: Project | None, options: UploadOptions, session: HubSession
) -> PreparedUpload:
    """Look at built variants and at the Hub; nothing is changed.

    Raises:
        UploadRefusedError: they may not be uploaded, with every reason.
        UsageError: no repository is named.
        HubError: the Hub cannot be asked.
    """
    candidates = tuple(examine_candidate(folder) for folder in folders)
    version = max((c.metadata.version for c in candidates if c.metadata), default=0)
    target = target_of(options, project, version)
    remote = read_remote_state(session.hub, target, session.retry)
    if options.missing:
        candidates = tuple(c for c in candidates if c.name not in remote.variants)
    card, card_problems = card_files_for(
        folders[0].parent,
        project,
        target,
        faults={c.name: c.findings[0].what for c in candidates if not c.compliant},
        dirty=[c.name for c in candidates if c.dirty],
        overruled={c.name: c.overruled for c in candidates if c.overruled},
    )
    allowed = {"dirty": options.allow_dirty, "noncompliant": options.allow_noncompliant}
    reasons = [
        *remote.reasons,
        *upload_obstacles(candidates, **allowed),
        *unaccepted_licences(candidates, options.accepted),
        *version_mismatches(project, candidates),
        *card_problems,
    ]
    raise_for_obstacles(_NOTHING_UPLOADED, reasons)
    layout = read_layout([c.folder for c in candidates], project.root if project else None, card)
    difference = upload_difference(target, remote, layout)
    warnings = [
        *version_warnings(remote, target, version),
        *_breaking_changes_of_first(candidates, target, remote, session),
        *provenance_warnings(candidates),
        *overruled_warnings(candidates),
    ]
    if not card:
        warnings.append("there is no card: the repository's page will not describe the kernel")
    return PreparedUpload(target, layout, difference, tuple(warnings))


def send_upload(prepared: PreparedUpload, session: HubSession, services: Services) -> UploadResult:
    """Carry it out.

    Raises:
        HubError: the Hub refuses, is not reached, or somebody else changes the same variants.
    """
    return upload(
        UploadRun(session.hub, prepared.target, prepared.layout, session.retry, services.ui.say)
    )


def _breaking_changes_of_first(
    candidates: Sequence[UploadCandidate],
    target: UploadTarget,
    remote: RemoteState,
    session: HubSession,
) -> tuple[str, ...]:
    """The warnings on one variant: all have the same Python files."""
    first = next((one for one in candidates if one.metadata is not None), None)
    if first is None or first.metadata is None:
        return ()
    return _breaking_changes(first.folder, target, remote, session, first.metadata.python_name)


def version_mismatches(
    project: Project | None, candidates: Sequence[UploadCandidate]
) -> Iterator[UploadObstacle]:
    """Variants of another version than the project's."""
    now = project.file.general.version if project else None
    for candidate in candidates:
        metadata = candidate.metadata
        if now is not None and metadata and metadata.version != now:
            message = f"it is of version {metadata.version}, `build.toml` says {now}"
            yield UploadObstacle(
                candidate.name, message, "build it again, or move it out of the folder"
            )


def provenance_warnings(candidates: Sequence[UploadCandidate]) -> Iterator[str]:
    """Warnings about variants that cannot be built again."""
    for candidate in candidates:
        provenance = candidate.metadata.provenance if candidate.metadata else None
        if provenance is None or provenance.kernel is None:
            yield f"{candidate.name}: it does not record the commit that it was built from"
        elif provenance.builder.git and provenance.builder.git.dirty:
            yield f"{candidate.name}: built by a modified kbuild"


def overruled_warnings(candidates: Sequence[UploadCandidate]) -> Iterator[str]:
    """Warnings about checks whose errors the author overruled."""
    for candidate in candidates:
        for check, reason in candidate.overruled.items():
            message = f"the errors of `{check}` are overruled: {reason}"
            yield f"{candidate.name}: {printable(message)}"
