"""Two versions, looked at together."""

from __future__ import annotations

from kbuild.surface import Change, SurfaceError, compare
from kbuild.versions.bump import bump_of
from kbuild.versions.difference import Difference, other_changes, variant_changes
from kbuild.versions.model import Version, is_same, python_files, surface_of


def differences(old: Version, new: Version, *, titles: tuple[str, str]) -> Difference:
    """Everything that differs.

    Raises:
        HubError: files have to be fetched for it, and cannot be.
    """
    interface, unread = interface_changes(old, new)
    return Difference(
        *titles,
        interface,
        unread,
        bump_of(interface, old, new),
        variants := variant_changes(old, new),
        _unchanged(old, new, {change.name for change in variants}),
        other_changes(old.files, new.files) if old.has_all and new.has_all else (),
    )


def interface_changes(old: Version, new: Version) -> tuple[tuple[Change, ...], str]:
    """How the Python packages differ, and why nobody can say when nobody can.

    Raises:
        HubError: files have to be fetched for it, and cannot be.
    """
    before, after = python_files(old), python_files(new)
    if (
        before
        and before.keys() == after.keys()
        and all(is_same(before[p], after[p]) for p in after)
    ):
        return (), ""
    surfaces = []
    for version in (old, new):
        try:
            surface = surface_of(version)
        except SurfaceError as error:
            return (), f"{version.kernel}@{version.name}: {error.message}"
        if surface is None:
            return (), f"{version.kernel}@{version.name} has no variant"
        surfaces.append(surface)
    return compare(*surfaces), ""


def _unchanged(old: Version, new: Version, changed: set[str]) -> tuple[str, ...]:
    return tuple(n for n in old.variants if n in new.variants and n not in changed)
