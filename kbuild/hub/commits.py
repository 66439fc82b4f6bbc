"""Commits of a running upload."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.errors import HubError
from kbuild.hub.plan import Batch, Changes, batches
from kbuild.hub.remote import Missing
from kbuild.hub.target import Job
from kbuild.hub.values import Commit, Refs, Tree

_MESSAGE = "Uploaded using kbuild"


def refs_of(job: Job) -> Refs:
    """The heads of the repository.

    Raises:
        HubError: there is no such repository.
    """
    try:
        return job.patience.persist(lambda: job.hub.refs(job.repo))
    except Missing as error:
        hint = "is the name right, and may the token see it?"
        raise HubError(f"the Hub shows no {job.repo.kind} `{job.repo}`", hint=hint) from error


def tree_of(job: Job, commit: str) -> Tree:
    """The files of a commit."""
    return job.patience.persist(lambda: job.hub.tree(job.repo, commit))


def commit_all(job: Job, revision: str, head: str, wanted: Changes) -> None:
    """Commit changes on top of a head, in batches; large contents are sent ahead of all of them.

    Raises:
        Moved: the head is another one by now.
        Busy: the Hub did not answer; whether the last commit was made is not known.
    """
    parts = batches(wanted)
    job.patience.persist(lambda: job.hub.send(job.repo, revision, wanted.adds))
    for at in range(len(parts)):
        head = commit_one(job, revision, head, parts, at).id


def commit_one(
    job: Job, revision: str, head: str, parts: Sequence[Batch], at: int, *, pull: bool = False
) -> Commit:
    """Commit one of several batches."""
    batch = parts[at]
    place = f" (batch {at + 1}/{len(parts)})" if len(parts) > 1 else ""
    made = job.hub.commit(
        job.repo,
        revision,
        batch.adds,
        batch.deletes,
        parent=head,
        message=f"{_MESSAGE}{place}.",
        pull=pull,
    )
    job.commits += 1
    job.say(f"commit {made.id[:8]} to {revision}{place}: {_counted(batch)}")
    return made


def _counted(batch: Batch) -> str:
    words = [(len(batch.adds), "file{} put"), (len(batch.deletes), "removed")]
    return ", ".join(f"{n} {word.format('s' * (n != 1))}" for n, word in words if n)
