"""Filling a snapshot: each file kept, copied inside the store or sent, and proved to be right."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial

from kbuild.errors import HubError
from kbuild.hub.entry import Entry
from kbuild.hub.remote import Missing
from kbuild.hub.values import RemoteFile
from kbuild.mirror.job import Job
from kbuild.mirror.manifest import Manifest, ManifestError
from kbuild.mirror.places import MANIFEST
from kbuild.mirror.read import Kept, manifest_at
from kbuild.mirror.store import Store


def fill(job: Job, wanted: Manifest, before: Kept | None) -> None:
    """Make the snapshot's folder hold the files of its manifest.

    Raises:
        HubError: the store refuses, does not answer, or does not give back what it was given.
    """
    top = job.place.snapshot(wanted.snapshot)
    _keep_manifest(job, wanted)
    there = job.patience.persist(lambda: job.store.sizes(top))
    work = _Filling(job, top, before, there)
    with ThreadPoolExecutor(job.store.workers) as pool:
        tasks = [pool.submit(work.file, path, wanted.files[path]) for path in sorted(wanted.files)]
        try:
            for task in tasks:
                job.sent += task.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _keep_manifest(job: Job, wanted: Manifest) -> None:
    """First of all: it says which files of the folder are kbuild's. One that is there stays."""
    try:
        job.patience.persist(lambda: manifest_at(job.store, job.place, wanted.snapshot))
    except (Missing, ManifestError):
        path = f"{job.place.snapshot(wanted.snapshot)}/{MANIFEST}"
        text = wanted.to_json_text().encode()
        job.patience.persist(lambda: job.store.write(path, text))


@dataclass(frozen=True)
class _Filling:
    """One snapshot being filled."""

    job: Job
    top: str
    before: Kept | None
    there: dict[str, int]
    """Bytes of files that an earlier run brought, by path."""

    def file(self, path: str, wanted: RemoteFile) -> int:
        """Bring one file; how many bytes had to be sent."""
        return self.job.patience.persist(partial(self._file, path, wanted))

    def _file(self, path: str, wanted: RemoteFile) -> int:
        store, target = self.job.store, f"{self.top}/{path}"
        if self.there.get(path) == wanted.size and sha256_of(store, target) == wanted.sha256:
            return 0
        if self._is_copied(path, wanted, target):
            return 0
        source = self._entries.get(path)
        if source is None:
            hint = "publish the variant that it belongs to again"
            words = f"`{path}` of {self.job.place} is damaged in {store.shown}"
            raise HubError(f"{words}, and not part of this build", hint=hint)
        store.write(target, source.source)
        if sha256_of(store, target) != wanted.sha256:
            words = f"{store.shown} does not give back `{path}` as it was sent"
            raise HubError(words, hint="did the file change meanwhile? Run the command again")
        return wanted.size

    @cached_property
    def _entries(self) -> dict[str, Entry]:
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
        except Missing:
            return False
        return not store.rereads or sha256_of(store, target) == wanted.sha256


def sha256_of(store: Store, path: str) -> str:
    """The hash of a file's content, in hex.

    Raises:
        Missing: there is no such file.
    """
    found = hashlib.sha256()
    for block in store.blocks(path):
        found.update(block)
    return found.hexdigest()
