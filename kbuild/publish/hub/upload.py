"""Uploads a kernel: the version branch first, then the card on `main`.

Nothing is remembered on this machine: each round reads what the Hub has, and does what is left;
whatever fails, the next round, or the next run, continues. A commit names its parent, so it
follows the state that was read or is rejected. A new version branch appears complete: its files
are committed to a staging branch first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from kbuild.publish.hub.changes import (
    BranchChanges,
    CommitBatch,
    card_changes,
    conflicting_paths,
    split_into_commits,
    version_changes,
)
from kbuild.publish.hub.huggingface import HubClient
from kbuild.publish.hub.layout import UploadLayout
from kbuild.publish.hub.repository import (
    MAIN,
    BusyError,
    Commit,
    ConflictError,
    NotFoundError,
    Refs,
    RemoteFiles,
    Repo,
    RetryPolicy,
)
from kbuild.system.errors import HubError

UploadStatus = Literal["no_changes", "uploaded", "pull_request_created"]
_STAGING = "kbuild-upload-"


@dataclass(frozen=True)
class UploadTarget:
    """The destination of an upload."""

    repo: Repo
    branch: str
    private: bool = False
    """True to make a repository that does not exist yet private."""
    pull: bool = False
    """True to open pull requests instead of changing the branches."""


@dataclass(frozen=True)
class PullRequest:
    """A pull request that was opened."""

    branch: str
    number: int
    url: str

    def to_json(self) -> dict[str, Any]:
        """The result in the form of the reference tool."""
        return {"branch": self.branch, "url": self.url}


@dataclass
class UploadRun:
    """An upload that runs."""

    hub: HubClient
    target: UploadTarget
    layout: UploadLayout
    retry: RetryPolicy
    say: Callable[[str], None]
    commits: int = 0
    branches: int = 0
    proposals: list[PullRequest] = field(default_factory=list)

    @property
    def repo(self) -> Repo:
        """The repository."""
        return self.target.repo

    def ensure_repository(self) -> None:
        """Make the repository, if there is none."""
        try:
            self.hub.refs(self.repo)
        except NotFoundError:
            kind = "the private" if self.target.private else "the"
            self.say(f"making {kind} repository {self.repo}")
            self.hub.create_repo(self.repo, private=self.target.private)


@dataclass(frozen=True)
class UploadResult:
    """The outcome of an upload."""

    status: UploadStatus
    target: UploadTarget
    address: str
    commits: int = 0
    proposals: tuple[PullRequest, ...] = ()

    @property
    def url(self) -> str | None:
        """Address of the uploaded files; None when nothing was uploaded."""
        if self.status == "no_changes":
            return None
        if self.proposals:
            return self.proposals[0].url
        return f"{self.address}/{self.target.repo.page}/tree/{self.target.branch}"

    def to_json(self) -> dict[str, Any]:
        """The fields that `--output-json` of the reference tool has, in its order."""
        return {
            "status": self.status,
            "repo_id": self.target.repo.id,
            "branch": self.target.branch,
            "url": self.url,
            "pull_requests": [proposal.to_json() for proposal in self.proposals],
        }


def staging_names(branch: str, branches: Iterable[str]) -> tuple[str, ...]:
    """The staging branches of uploads of a version, finished or not."""
    prefix = f"{_STAGING}{branch}-"
    digits = frozenset("0123456789abcdef")
    return tuple(
        sorted(
            name
            for name in branches
            if name != MAIN and name.startswith(prefix) and digits >= {*name[len(prefix) :]}
        )
    )


_MESSAGE = "Uploaded using kbuild"


def read_refs(job: UploadRun) -> Refs:
    """The heads of the repository.

    Raises:
        HubError: there is no such repository.
    """
    try:
        return job.retry.call(lambda: job.hub.refs(job.repo))
    except NotFoundError as error:
        hint = "is the name right, and may the token see it?"
        raise HubError(f"the Hub shows no kernel `{job.repo}`", hint=hint) from error


def read_tree(job: UploadRun, commit: str) -> RemoteFiles:
    """The files of a commit."""
    return job.retry.call(lambda: job.hub.tree(job.repo, commit))


def commit_all(job: UploadRun, revision: str, head: str, wanted: BranchChanges) -> None:
    """Commit changes on top of a head, in batches; large contents are sent ahead of all of them.

    Raises:
        ConflictError: the head is another one by now.
        BusyError: the Hub did not answer; whether the last commit was made is not known.
    """
    parts = split_into_commits(wanted)
    job.retry.call(lambda: job.hub.send(job.repo, revision, wanted.adds))
    for at in range(len(parts)):
        head = commit_one(job, revision, head, parts, at).id


def commit_one(
    job: UploadRun,
    revision: str,
    head: str,
    parts: Sequence[CommitBatch],
    at: int,
    *,
    pull: bool = False,
) -> Commit:
    """Commit one of several batches."""
    batch = parts[at]
    place = f" (batch {at + 1}/{len(parts)})" if len(parts) > 1 else ""
    commit = job.hub.commit(
        job.repo,
        revision,
        batch.adds,
        batch.deletes,
        parent=head,
        message=f"{_MESSAGE}{place}.",
        pull=pull,
    )
    job.commits += 1
    job.say(f"commit {commit.id[:8]} to {revision}{place}: {_count_text(batch)}")
    return commit


def _count_text(batch: CommitBatch) -> str:
    counts = [(len(batch.adds), "file{} put"), (len(batch.deletes), "removed")]
    return ", ".join(f"{n} {word.format('s' * (n != 1))}" for n, word in counts if n)


_RECENT = 5
"""Number of pull requests that are searched for one that an earlier try has begun."""
_ATTRIBUTES = ".gitattributes"
"""The Hub writes into it which files are large."""


def open_or_continue_pull_request(
    job: UploadRun, refs: Refs, branch: str, wanted: BranchChanges
) -> bool:
    """Open a pull request against a branch, or go on with one that was begun; True when done.

    Raises:
        BusyError: the Hub did not answer; what was opened is found again in the next round.
    """
    head = refs.branches[branch]
    before = read_tree(job, head)
    parts = split_into_commits(wanted)
    number, done = _find_begun(job, refs, before, parts)
    url = f"{job.hub.address}/{job.repo.page}/discussions/{number}"
    if done:
        job.say(f"continuing pull request {number}")
        head = refs.pulls[number]
    else:
        commit = commit_one(job, branch, head, parts, 0, pull=True)
        number, url, head, done = commit.pull or 0, commit.url, commit.id, 1
    for at in range(done, len(parts)):
        head = commit_one(job, f"refs/pr/{number}", head, parts, at).id
    job.proposals.append(PullRequest(branch, number, url))
    return True


def _find_begun(
    job: UploadRun, refs: Refs, before: RemoteFiles, parts: Sequence[CommitBatch]
) -> tuple[int, int]:
    """Number of a pull request that holds the first batches, and how many; zeros without one."""
    states = [_hashes_after(before, parts[:count]) for count in range(1, len(parts) + 1)]
    for number in sorted(refs.pulls, reverse=True)[:_RECENT]:
        tree = read_tree(job, refs.pulls[number])
        for done, state in reversed(tuple(enumerate(states, 1))):
            if _has_hashes(tree, state):
                return number, done
    return 0, 0


ExpectedHashes = dict[str, frozenset[str]]
"""Hashes by path, of which a file must have one."""


def _hashes_after(before: RemoteFiles, parts: Sequence[CommitBatch]) -> ExpectedHashes:
    state = {path: frozenset((file.sha256 or file.blob,)) for path, file in before.items()}
    for part in parts:
        # The Hub decides which files are large, and gives only those a SHA-256: either will do.
        state |= {entry.path: frozenset((entry.sha256, entry.blob)) for entry in part.adds}
        state = {path: hashes for path, hashes in state.items() if path not in part.deletes}
    return state


def _has_hashes(tree: RemoteFiles, state: ExpectedHashes) -> bool:
    if {*tree} - {_ATTRIBUTES} != {*state} - {_ATTRIBUTES}:
        return False
    return all(
        (tree[path].sha256 or tree[path].blob) in hashes
        for path, hashes in state.items()
        if path != _ATTRIBUTES
    )


_MAX_CONFLICTS = 12
"""Conflicts in a row before a person should look."""


def upload(job: UploadRun) -> UploadResult:
    """Make the repository hold what is wanted.

    Raises:
        ConflictError: somebody else changes the same variants.
        BusyError: the Hub did not answer for too long; the next run goes on.
        HubError: the Hub refuses.
    """
    if not job.target.pull:
        job.retry.call(job.ensure_repository)
    _retry_until_done(job, _VersionBranch(job).round)
    if job.layout.card:
        _retry_until_done(job, partial(_upload_card, job))
    status: UploadStatus = "uploaded" if job.commits or job.branches else "no_changes"
    if job.proposals:
        status = "pull_request_created"
    return UploadResult(status, job.target, job.hub.address, job.commits, tuple(job.proposals))


def _retry_until_done(job: UploadRun, once: Callable[[], bool]) -> None:
    """Rounds until one finds nothing left to do."""
    failures, done = 0, job.commits
    while True:
        try:
            if once():
                return
            continue
        except (ConflictError, NotFoundError, BusyError) as error:
            problem = error
        # A round that committed something made progress, although it failed in the end.
        failures = 1 if job.commits > done else failures + 1
        done = job.commits
        if failures >= _MAX_CONFLICTS:
            raise problem
        # A Hub that is busy is given time; where others come first, a moment is enough.
        if isinstance(problem, BusyError):
            job.retry.wait(problem, failures)
        else:
            job.retry.wait(BusyError(problem.message, retry_after_s=0), 1)


class _VersionBranch:
    """The branch with the variants."""

    def __init__(self, job: UploadRun) -> None:
        self.job = job
        self.before: RemoteFiles | None = None
        """The branch when this run first looked; empty when there was none."""

    def round(self) -> bool:
        """Take one step; True when nothing is left to do."""
        job, branch = self.job, self.job.target.branch
        refs = read_refs(job)
        head = refs.branches.get(branch)
        now = read_tree(job, head) if head else {}
        self.before = now if self.before is None else self.before
        if head is None:
            return self._make_branch(refs)
        changed = conflicting_paths(self.job.layout, self.before or {}, now)
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise HubError(
                f"somebody else changed `{changed[0]}`{more} on `{self.job.target.branch}` of "
                f"{self.job.repo} during this upload; nothing of it was overwritten",
                hint="`kbuild upload --dry-run` shows how it differs from this build now",
            )
        wanted = version_changes(job.layout, now, is_new=False)
        if not wanted:
            self._clear_away(refs)
            return True
        if job.target.pull:
            return open_or_continue_pull_request(job, refs, branch, wanted)
        commit_all(job, branch, head, wanted)
        return False

    def _make_branch(self, refs: Refs) -> bool:
        """Make the branch, complete from its first moment on."""
        job, branch = self.job, self.job.target.branch
        if job.target.pull:
            hint = "upload the version without --create-pr first"
            raise HubError(f"{job.repo} has no branch `{branch}` for a pull request", hint=hint)
        # Named after the content, so that a later run continues, and another build starts anew.
        staging = f"{_STAGING}{branch}-{job.layout.fingerprint}"
        head = refs.branches.get(staging) or self._stage(staging, refs)
        wanted = version_changes(job.layout, read_tree(job, head), is_new=True)
        if wanted:
            commit_all(job, staging, head, wanted)
            return False
        job.hub.create_branch(job.repo, branch, head)
        job.branches += 1
        return False

    def _stage(self, staging: str, refs: Refs) -> str:
        job = self.job
        start = refs.branches.get(MAIN)
        if start is None:
            raise HubError(f"{job.repo} has no branch `{MAIN}`", hint="make it on the Hub's pages")
        job.hub.create_branch(job.repo, staging, start)
        return start

    def _clear_away(self, refs: Refs) -> None:
        """Remove staging branches of this version; an upload that still uses one starts again."""
        job = self.job
        if job.target.pull:
            return
        for name in staging_names(job.target.branch, refs.branches):
            job.retry.call(lambda name=name: job.hub.delete_branch(job.repo, name))  # type: ignore[misc]


def _upload_card(job: UploadRun) -> bool:
    """One step for `README.md` on `main`; the last upload decides."""
    refs = read_refs(job)
    head = refs.branches[MAIN]
    wanted = card_changes(job.layout, read_tree(job, head))
    if not wanted:
        return True
    if job.target.pull:
        return open_or_continue_pull_request(job, refs, MAIN, wanted)
    commit_all(job, MAIN, head, wanted)
    return False
