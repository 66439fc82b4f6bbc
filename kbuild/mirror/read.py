"""What a mirror has: kernels, versions, and the manifest of each."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.errors import FileConflictError
from kbuild.hub.remote import Missing
from kbuild.hub.values import Repo
from kbuild.mirror.manifest import Manifest, ManifestError, parse_manifest
from kbuild.mirror.places import MANIFEST, Place, is_snapshot, refs_of, repo_in
from kbuild.mirror.store import Store


@dataclass(frozen=True)
class Kept:
    """A version as a mirror has it."""

    place: Place
    snapshot: str
    manifest: Manifest


def kernels_in(store: Store) -> tuple[Repo, ...]:
    """The kernels of a mirror, by name.

    Raises:
        HubError: the store cannot be asked.
    """
    found = (repo_in(name) for name in store.names(""))
    return tuple(repo for repo in found if repo is not None)


def branches_in(store: Store, repo: Repo) -> tuple[str, ...]:
    """The versions of a kernel, whoever put them there.

    Raises:
        HubError: the store cannot be asked.
    """
    return tuple(sorted(store.sizes(refs_of(repo))))


def snapshot_at(store: Store, place: Place) -> str | None:
    """The snapshot that a version is; None when there is no such version.

    Raises:
        HubError: the store cannot be asked.
    """
    try:
        return store.read(place.ref).decode("ascii", "replace").strip()
    except Missing:
        return None


def manifest_at(store: Store, place: Place, snapshot: str) -> Manifest:
    """What is in a snapshot.

    Raises:
        Missing: it has no manifest.
        ManifestError: the manifest is none, or another snapshot's.
    """
    where = f"{place.snapshot(snapshot)}/{MANIFEST}"
    manifest = parse_manifest(store.read(where), where)
    if (manifest.kernel, manifest.branch, manifest.snapshot) != (
        place.repo.id,
        place.branch,
        snapshot,
    ):
        raise ManifestError(f"`{where}` is another version's manifest")
    return manifest


def kept_at(store: Store, place: Place) -> Kept | None:
    """A version; None when there is none.

    Raises:
        FileConflictError: somebody else put it there, `huggingface_hub` for instance.
        ManifestError: its manifest cannot be read.
        HubError: the store cannot be asked.
    """
    snapshot = snapshot_at(store, place)
    if snapshot is None:
        return None
    try:
        if is_snapshot(snapshot):
            return Kept(place, snapshot, manifest_at(store, place, snapshot))
    except Missing:
        pass
    raise FileConflictError(
        f"`{place.ref}` in {store.shown} was not written by `kbuild publish`",
        hint="is it a cache that something downloads into? Give a mirror a place of its own",
    )
