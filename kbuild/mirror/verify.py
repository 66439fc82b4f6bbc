"""Whether a mirror holds what its manifests say, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from kbuild.errors import FileConflictError
from kbuild.hub.layout import BUILD
from kbuild.hub.repository import AccessDeniedError, NotFoundError, RemoteFile, RetryPolicy
from kbuild.mirror.layout import (
    MANIFEST,
    ManifestError,
    PublishedVersion,
    VersionPaths,
    read_version,
)
from kbuild.mirror.publish import stored_sha256
from kbuild.mirror.store import MirrorStore


@dataclass(frozen=True)
class MirrorVerification:
    """What is known of one version."""

    place: VersionPaths
    files: int = 0
    size: int = 0
    """Bytes that were read."""
    faults: tuple[str, ...] = ()
    """What is wrong, each in a sentence."""
    is_listed: bool = True
    """False where the store gives no lists: nobody can say then what else is there."""


def verify_version(
    store: MirrorStore, place: VersionPaths, retry: RetryPolicy
) -> MirrorVerification:
    """Read every file of a version.

    Raises:
        HubError: the store does not answer.
    """
    try:
        kept = retry.call(lambda: read_version(store, place))
    except (FileConflictError, ManifestError) as error:
        return MirrorVerification(place, faults=(error.message,))
    if kept is None:
        return MirrorVerification(place, faults=(f"`{place.ref}` is not there",))
    files = kept.manifest.files
    check = partial(_file_fault, store, place.snapshot(kept.snapshot), retry)
    with ThreadPoolExecutor(store.workers) as pool:
        faults = pool.map(lambda path: check(path, files[path]), sorted(files))
        wrong = [fault for fault in faults if fault]
    size = sum(file.size for file in files.values())
    try:
        strangers = tuple(_unlisted_files(store, kept, retry))
    except AccessDeniedError:
        return MirrorVerification(place, len(files), size, tuple(wrong), is_listed=False)
    return MirrorVerification(
        place, len(files), size, (*wrong, *strangers, *_wrong_link(store, kept))
    )


def _file_fault(
    store: MirrorStore, top: str, retry: RetryPolicy, path: str, wanted: RemoteFile
) -> str:
    try:
        digest = retry.call(lambda: stored_sha256(store, f"{top}/{path}"))
    except NotFoundError:
        return f"`{path}` is gone"
    return "" if digest == wanted.sha256 else f"`{path}` differs from the manifest"


def _unlisted_files(
    store: MirrorStore, kept: PublishedVersion, retry: RetryPolicy
) -> Iterator[str]:
    """Files that the client could load, and that nobody published."""
    there = retry.call(lambda: store.sizes(kept.place.snapshot(kept.snapshot)))
    for path in sorted(there.keys() - kept.manifest.files.keys() - {MANIFEST}):
        if path.startswith(f"{BUILD}/"):
            yield f"`{path}` is not in the manifest"


def _wrong_link(store: MirrorStore, kept: PublishedVersion) -> Iterator[str]:
    target = store.target(kept.place.link)
    if target is not None and target != kept.place.target(kept.snapshot):
        yield f"the link `{kept.place.link}` leads to another snapshot"
