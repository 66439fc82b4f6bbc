"""Publishes into a mirror: a snapshot beside what is there, then one small file that names it.

1. The manifest of the new snapshot, then its files: what the version had already is linked or
   copied inside the store, the rest is sent. What an interrupted run left is read and kept.
2. Every file that was sent is read back, and its SHA-256 compared.
3. `refs/<version>` is replaced, then the link: from here on readers see the new version, all of
   it.
4. Snapshots that no version has used for a day are removed, as far as their manifests know them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial

from kbuild.errors import HubError
from kbuild.hub.changes import BranchChanges, branch_changes
from kbuild.hub.layout import UploadLayout
from kbuild.hub.repository import NotFoundError, RemoteFile, RemoteFiles, RetryPolicy, UploadFile
from kbuild.mirror.layout import (
    MANIFEST,
    Manifest,
    ManifestError,
    PublishedVersion,
    VersionPaths,
    is_snapshot,
    kernel_folder,
    list_branches,
    read_manifest,
    read_snapshot_name,
    read_version,
    remote_file_of,
    snapshots_folder,
    version_paths,
)
from kbuild.mirror.store import MirrorStore

STORE_TRIES = 5
"""How often in a row a store may fail to answer."""


@dataclass
class PublishRun:
    """A version on its way into a mirror."""

    store: MirrorStore
    place: VersionPaths
    layout: UploadLayout
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(tries=STORE_TRIES))
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc).replace(microsecond=0)
    sent: int = 0
    """Bytes that were sent so far."""


@dataclass(frozen=True)
class PublishResult:
    """How it ended."""

    changed: bool
    snapshot: str
    sent: int
    """Bytes."""


def fill_snapshot(job: PublishRun, wanted: Manifest, before: PublishedVersion | None) -> None:
    """Make the snapshot's folder hold the files of its manifest.

    Raises:
        HubError: the store refuses, does not answer, or does not give back what it was given.
    """
    top = job.place.snapshot(wanted.snapshot)
    # First of all: it says which files of the folder are kbuild's. One that is there stays.
    try:
        job.retry.call(lambda: read_manifest(job.store, job.place, wanted.snapshot))
    except (NotFoundError, ManifestError):
        path = f"{job.place.snapshot(wanted.snapshot)}/{MANIFEST}"
        text = wanted.to_json_text().encode()
        job.retry.call(lambda: job.store.write(path, text))
    work = _SnapshotWriter(job, top, before, job.retry.call(lambda: job.store.sizes(top)))
    with ThreadPoolExecutor(job.store.workers) as pool:
        tasks = [pool.submit(work.file, path, wanted.files[path]) for path in sorted(wanted.files)]
        try:
            for task in tasks:
                job.sent += task.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@dataclass(frozen=True)
class _SnapshotWriter:
    """One snapshot being filled."""

    job: PublishRun
    top: str
    before: PublishedVersion | None
    there: dict[str, int]
    """Bytes of files that an earlier run brought, by path."""

    def file(self, path: str, wanted: RemoteFile) -> int:
        """Bring one file; how many bytes had to be sent."""
        return self.job.retry.call(partial(self._file, path, wanted))

    def _file(self, path: str, wanted: RemoteFile) -> int:
        store, target = self.job.store, f"{self.top}/{path}"
        if self.there.get(path) == wanted.size and stored_sha256(store, target) == wanted.sha256:
            return 0
        if self._is_copied(path, wanted, target):
            return 0
        source = self._entries.get(path)
        if source is None:
            hint = "publish the variant that it belongs to again"
            message = f"`{path}` of {self.job.place} is damaged in {store.shown}"
            raise HubError(f"{message}, and not part of this build", hint=hint)
        store.write(target, source.source)
        if stored_sha256(store, target) != wanted.sha256:
            message = f"{store.shown} returns other bytes for `{path}` than were sent"
            raise HubError(
                message, hint="did the file change during the upload? Run the command again"
            )
        return wanted.size

    @cached_property
    def _entries(self) -> dict[str, UploadFile]:
        entries = (*self.job.layout.entries, *self.job.layout.card)
        return {entry.path: entry for entry in entries}

    def _is_copied(self, path: str, wanted: RemoteFile, target: str) -> bool:
        """Whether the version that is there had the file, and the store could copy it."""
        had = self.before.manifest.files.get(path) if self.before else None
        if self.before is None or had is None or had.sha256 != wanted.sha256:
            return False
        if self.before.snapshot == self.top.rpartition("/")[2]:
            return False
        store = self.job.store
        try:
            store.duplicate(f"{self.job.place.snapshot(self.before.snapshot)}/{path}", target)
        except NotFoundError:
            return False
        return not store.verifies_copies or stored_sha256(store, target) == wanted.sha256


def stored_sha256(store: MirrorStore, path: str) -> str:
    """The hash of a file's content, in hex.

    Raises:
        NotFoundError: there is no such file.
    """
    digest = hashlib.sha256()
    for block in store.blocks(path):
        digest.update(block)
    return digest.hexdigest()


def remove_old_snapshots(
    store: MirrorStore, place: VersionPaths, keep: Iterable[str], older_than: datetime
) -> None:
    """Remove old snapshots of a version; what cannot be removed stays until the next time.

    Args:
        store: the mirror.
        place: the version.
        keep: snapshots that stay: the one that was just replaced is still being read.
        older_than: younger ones stay, too: somebody else may be filling them.
    """
    try:
        for name, manifest in tuple(_unused_snapshots(store, place, frozenset(keep))):
            if manifest.published < older_than:
                top = place.snapshot(name)
                store.remove([*(f"{top}/{path}" for path in manifest.files), f"{top}/{MANIFEST}"])
    except HubError:
        return


def _unused_snapshots(
    store: MirrorStore, place: VersionPaths, keep: frozenset[str]
) -> Iterator[tuple[str, Manifest]]:
    """Snapshots of this version that nothing names."""
    refs = (version_paths(place.repo, branch) for branch in list_branches(store, place.repo))
    named = {read_snapshot_name(store, ref) for ref in refs}
    for name in store.names(snapshots_folder(place.repo)):
        if name in keep or name in named or not is_snapshot(name):
            continue
        try:
            yield name, read_manifest(store, place, name)
        except HubError:
            continue  # another version's, or not kbuild's


_LOCK_FILE = ".kbuild.lock"
_MAX_ROUNDS = 5


def mirror_changes(layout: UploadLayout, tree: RemoteFiles) -> BranchChanges:
    """What has to be done to a version whose files are `tree`; the card is among its files."""
    stale = (*layout.stale(tree, is_new=False), *layout.stale_charts(tree))
    return branch_changes((*layout.entries, *layout.card), stale, tree)


def publish(job: PublishRun) -> PublishResult:
    """Make the mirror's version hold what is wanted.

    Raises:
        FileConflictError: what is there was put there by something else.
        HubError: the store refuses, does not answer, or does not give back what it was given.
    """
    with job.store.alone(f"{kernel_folder(job.place.repo)}/{_LOCK_FILE}"):
        for _ in range(_MAX_ROUNDS):
            if (outcome := _publish_once(job)) is not None:
                return outcome
    hint = "run the command again when nobody else publishes this version"
    raise HubError(f"{job.place} in {job.store.shown} keeps changing", hint=hint)


def _publish_once(job: PublishRun) -> PublishResult | None:
    """One try; None when somebody else came first."""
    before = job.retry.call(lambda: read_version(job.store, job.place))
    tree: dict[str, RemoteFile] = dict(before.manifest.files) if before else {}
    changes = mirror_changes(job.layout, tree)
    for path in changes.deletes:
        del tree[path]
    tree |= {entry.path: remote_file_of(entry) for entry in (*changes.adds, *changes.unchanged)}
    wanted = Manifest(job.place.repo.id, job.place.branch, job.now(), tree)
    name = wanted.snapshot
    is_new = before is None or before.snapshot != name
    if is_new or not _is_complete(job, wanted):
        fill_snapshot(job, wanted, before)
    if is_new:
        now = job.retry.call(lambda: read_snapshot_name(job.store, job.place))
        if now != (before.snapshot if before else None):
            return None
        job.retry.call(lambda: job.store.write(job.place.ref, name.encode()))
    if job.store.target(job.place.link) != job.place.target(name):
        job.store.point(job.place.link, job.place.target(name))
    if before is not None and is_new:
        remove_old_snapshots(
            job.store, job.place, (name, before.snapshot), job.now() - timedelta(days=1)
        )
    return PublishResult(is_new or job.sent > 0, name, job.sent)


def _is_complete(job: PublishRun, wanted: Manifest) -> bool:
    sizes = job.retry.call(lambda: job.store.sizes(job.place.snapshot(wanted.snapshot)))
    return all(sizes.get(path) == file.size for path, file in wanted.files.items())
