"""What is asked before a build whose result is to be uploaded: hours must not be lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kbuild.hub.layout import BUILD
from kbuild.hub.preflight import Standing, look, of_space, of_versions
from kbuild.hub.reasons import Reason, refuse
from kbuild.hub.target import Target
from kbuild.identity import Identity
from kbuild.matrix.selection import Selection, select
from kbuild.pipeline.options import Doors
from kbuild.pipeline.plans import plan
from kbuild.pipeline.upload.cards import card_of
from kbuild.pipeline.upload.interface import interface_of
from kbuild.pipeline.upload.options import Desk, UploadOptions, target_of
from kbuild.project import Project
from kbuild.surface import package_of

_REFUSED = "nothing was built or uploaded:"


@dataclass(frozen=True)
class Ahead:
    """What a build and upload will be about."""

    target: Target
    variants: tuple[str, ...]
    """To build: those that were selected, without those that are there with `--missing`."""
    published: frozenset[str]
    """Variants that the branch has."""


def before_build(
    project: Project,
    options: UploadOptions,
    selection: Selection,
    desk: Desk,
    doors: Doors,
    *,
    identity: Identity | None = None,
) -> Ahead:
    """Whether the result of a build could be uploaded.

    Raises:
        UploadRefusedError: it could not be, with every reason.
        HubError: the Hub cannot be asked.
    """
    version = project.file.general.version
    target = target_of(options, project, version)
    standing = look(desk.hub, target, desk.patience)
    package = package_of(project.root, project.python_name)
    interface = interface_of(
        package, target, standing, desk, own=project.python_name, version=version
    )
    reasons = [
        *standing.reasons,
        *interface.reasons(version),
        *_of_project(project, selection, options, doors, identity),
        *card_of(project.root / BUILD, project, target)[1],
        *of_space(standing, project.root),
    ]
    refuse(_REFUSED, reasons)
    for warning in of_versions(standing, target, version):
        doors.ui.warn(warning)
    chosen = tuple(str(choice.variant) for choice in select(project, selection))
    return Ahead(target, _wanted(chosen, standing, options), standing.variants)


def _wanted(chosen: tuple[str, ...], standing: Standing, options: UploadOptions) -> tuple[str, ...]:
    if not options.missing:
        return chosen
    return tuple(name for name in chosen if name not in standing.variants)


def _of_project(
    project: Project,
    selection: Selection,
    options: UploadOptions,
    doors: Doors,
    identity: Identity | None,
) -> Iterator[Reason]:
    if not project.file.general.license.strip():
        yield Reason("licence", "`general.license` is empty", "write an SPDX identifier")
    if not options.allow_dirty:
        plans = plan(project, selection, doors.runner, identity=identity)
        if any(made.commit and made.dirty for made in plans):
            words = "what would be built differs from the commit"
            yield Reason("sources", words, "commit first, or give --allow-dirty")
