"""Whether a mirror holds what its manifests say, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from kbuild.errors import FileConflictError
from kbuild.hub.layout import BUILD
from kbuild.hub.patience import Patience
from kbuild.hub.remote import Denied, Missing
from kbuild.hub.values import RemoteFile
from kbuild.mirror.fill import sha256_of
from kbuild.mirror.manifest import ManifestError
from kbuild.mirror.places import MANIFEST, Place
from kbuild.mirror.read import Kept, kept_at
from kbuild.mirror.store import Store


@dataclass(frozen=True)
class Verdict:
    """What is known of one version."""

    place: Place
    files: int = 0
    size: int = 0
    """Bytes that were read."""
    faults: tuple[str, ...] = ()
    """What is wrong, each in a sentence."""
    is_listed: bool = True
    """False where the store gives no lists: nobody can say then what else is there."""


def verify(store: Store, place: Place, patience: Patience) -> Verdict:
    """Read every file of a version.

    Raises:
        HubError: the store does not answer.
    """
    try:
        kept = patience.persist(lambda: kept_at(store, place))
    except (FileConflictError, ManifestError) as error:
        return Verdict(place, faults=(error.message,))
    if kept is None:
        return Verdict(place, faults=(f"`{place.ref}` is not there",))
    files = kept.manifest.files
    check = partial(_fault, store, place.snapshot(kept.snapshot), patience)
    with ThreadPoolExecutor(store.workers) as pool:
        found = pool.map(lambda path: check(path, files[path]), sorted(files))
        wrong = [fault for fault in found if fault]
    size = sum(file.size for file in files.values())
    try:
        strangers = tuple(_strangers(store, kept, patience))
    except Denied:
        return Verdict(place, len(files), size, tuple(wrong), is_listed=False)
    return Verdict(place, len(files), size, (*wrong, *strangers, *_astray(store, kept)))


def _fault(store: Store, top: str, patience: Patience, path: str, wanted: RemoteFile) -> str:
    try:
        found = patience.persist(lambda: sha256_of(store, f"{top}/{path}"))
    except Missing:
        return f"`{path}` is gone"
    return "" if found == wanted.sha256 else f"`{path}` differs from the manifest"


def _strangers(store: Store, kept: Kept, patience: Patience) -> Iterator[str]:
    """Files that the client could load, and that nobody published."""
    there = patience.persist(lambda: store.sizes(kept.place.snapshot(kept.snapshot)))
    for path in sorted(there.keys() - kept.manifest.files.keys() - {MANIFEST}):
        if path.startswith(f"{BUILD}/"):
            yield f"`{path}` is not in the manifest"


def _astray(store: Store, kept: Kept) -> Iterator[str]:
    target = store.target(kept.place.link)
    if target is not None and target != kept.place.target(kept.snapshot):
        yield f"the link `{kept.place.link}` leads to another snapshot"
