"""Removing snapshots that no version is any more, and of them only what kbuild put there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from kbuild.errors import HubError
from kbuild.mirror.manifest import Manifest
from kbuild.mirror.places import MANIFEST, Place, is_snapshot, place_of, snapshots_of
from kbuild.mirror.read import branches_in, manifest_at, snapshot_at
from kbuild.mirror.store import Store


def sweep(store: Store, place: Place, keep: Iterable[str], older_than: datetime) -> None:
    """Remove old snapshots of a version; what cannot be removed stays until the next time.

    Args:
        store: the mirror.
        place: the version.
        keep: snapshots that stay: the one that was just replaced is still being read.
        older_than: younger ones stay, too: somebody else may be filling them.
    """
    try:
        for name, manifest in tuple(_left(store, place, frozenset(keep))):
            if manifest.published < older_than:
                top = place.snapshot(name)
                store.remove([*(f"{top}/{path}" for path in manifest.files), f"{top}/{MANIFEST}"])
    except HubError:
        return


def _left(store: Store, place: Place, keep: frozenset[str]) -> Iterator[tuple[str, Manifest]]:
    """Snapshots of this version that nothing names."""
    refs = (place_of(place.repo, branch) for branch in branches_in(store, place.repo))
    named = {snapshot_at(store, ref) for ref in refs}
    for name in store.names(snapshots_of(place.repo)):
        if name in keep or name in named or not is_snapshot(name):
            continue
        try:
            yield name, manifest_at(store, place, name)
        except HubError:
            continue  # another version's, or not kbuild's
