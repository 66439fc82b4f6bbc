"""Publishing into a mirror: a snapshot beside what is there, then one small file that names it.

1. The manifest of the new snapshot, then its files: what the version had already is linked or
   copied inside the store, the rest is sent. What an interrupted run left is read and kept.
2. Every file that was sent is read back, and its SHA-256 compared.
3. `refs/<version>` is replaced, then the link: from here on readers see the new version, all of it.
4. Snapshots that no version has been for a day are removed, as far as their manifests know them.
"""

from __future__ import annotations

from datetime import timedelta

from kbuild.errors import HubError
from kbuild.hub.layout import Layout
from kbuild.hub.plan import Changes, changes
from kbuild.hub.values import RemoteFile, Tree
from kbuild.mirror.fill import fill
from kbuild.mirror.job import Job, Outcome
from kbuild.mirror.manifest import Manifest, file_of
from kbuild.mirror.places import folder_of
from kbuild.mirror.read import Kept, kept_at, snapshot_at
from kbuild.mirror.sweep import sweep

_LOCK = ".kbuild.lock"
_ROUNDS = 5


def mirror_changes(layout: Layout, tree: Tree) -> Changes:
    """What has to be done to a version whose files are `tree`; the card is among its files."""
    stale = (*layout.stale(tree, is_new=False), *layout.stale_charts(tree))
    return changes((*layout.entries, *layout.card), stale, tree)


def publish(job: Job) -> Outcome:
    """Make the mirror's version hold what is wanted.

    Raises:
        FileConflictError: what is there was put there by something else.
        HubError: the store refuses, does not answer, or does not give back what it was given.
    """
    with job.store.alone(f"{folder_of(job.place.repo)}/{_LOCK}"):
        for _ in range(_ROUNDS):
            if (outcome := _round(job)) is not None:
                return outcome
    hint = "run the command again when nobody else publishes this version"
    raise HubError(f"{job.place} in {job.store.shown} changes all the time", hint=hint)


def _round(job: Job) -> Outcome | None:
    """One try; None when somebody else came first."""
    before = job.patience.persist(lambda: kept_at(job.store, job.place))
    wanted = _wanted(job, before)
    name = wanted.snapshot
    is_new = before is None or before.snapshot != name
    if is_new or not _is_all_there(job, wanted):
        fill(job, wanted, before)
    if is_new:
        now = job.patience.persist(lambda: snapshot_at(job.store, job.place))
        if now != (before.snapshot if before else None):
            return None
        job.patience.persist(lambda: job.store.write(job.place.ref, name.encode()))
    if job.store.target(job.place.link) != job.place.target(name):
        job.store.point(job.place.link, job.place.target(name))
    if before is not None and is_new:
        sweep(job.store, job.place, (name, before.snapshot), job.now() - timedelta(days=1))
    return Outcome(is_new or job.sent > 0, name, job.sent)


def _wanted(job: Job, before: Kept | None) -> Manifest:
    tree: dict[str, RemoteFile] = dict(before.manifest.files) if before else {}
    told = mirror_changes(job.layout, tree)
    for path in told.deletes:
        del tree[path]
    tree |= {entry.path: file_of(entry) for entry in (*told.adds, *told.unchanged)}
    return Manifest(job.place.repo.id, job.place.branch, job.now(), tree)


def _is_all_there(job: Job, wanted: Manifest) -> bool:
    sizes = job.patience.persist(lambda: job.store.sizes(job.place.snapshot(wanted.snapshot)))
    return all(sizes.get(path) == file.size for path, file in wanted.files.items())
