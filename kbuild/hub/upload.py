"""An upload: the version branch first, then the card on `main`, each until it is as wanted.

Nothing is remembered on this machine. Each round reads what the Hub has, works out what is left,
and does it; whatever goes wrong in between, the next round, or the next run, goes on from there. A
commit names its parent, so it either follows the state that was read or is refused.

A version branch that does not exist yet appears complete: its files are committed to a branch of
another name, and the version branch is made from the finished commit.
"""

from __future__ import annotations

from collections.abc import Callable

from kbuild.errors import HubError
from kbuild.hub.commits import commit_all, refs_of, tree_of
from kbuild.hub.plan import card_changes, overtaken, version_changes
from kbuild.hub.pulls import propose
from kbuild.hub.remote import Busy, Missing, Moved
from kbuild.hub.target import Job, Outcome, Status, staging_name, staging_names
from kbuild.hub.values import MAIN, Refs, Tree

_ROUNDS = 12
"""How often in a row others may come first before somebody should look."""


def upload(job: Job) -> Outcome:
    """Make the repository hold what is wanted.

    Raises:
        Moved: somebody else changes the same variants.
        Busy: the Hub did not answer for too long; the next run goes on.
        HubError: the Hub refuses.
    """
    if not job.target.pull:
        repo, private = job.repo, job.target.private
        job.patience.persist(lambda: _ensure_repository(job, private=private, repo=repo.id))
    _settle(job, _Version(job).round)
    if job.layout.card:
        _settle(job, _Card(job).round)
    return _outcome(job)


def _outcome(job: Job) -> Outcome:
    status: Status = "uploaded" if job.commits or job.branches else "no_changes"
    if job.proposals:
        status = "pull_request_created"
    return Outcome(status, job.target, job.hub.address, job.commits, tuple(job.proposals))


def _ensure_repository(job: Job, *, private: bool, repo: str) -> None:
    try:
        job.hub.refs(job.repo)
    except Missing:
        job.say(f"making {'the private' if private else 'the'} repository {repo}")
        job.hub.create_repo(job.repo, private=private)


def _settle(job: Job, once: Callable[[], bool]) -> None:
    """Rounds until one finds nothing left to do."""
    failures, done = 0, job.commits
    while True:
        try:
            if once():
                return
            continue
        except (Moved, Missing, Busy) as error:
            problem = error
        failures = 1 if job.commits > done else failures + 1
        done = job.commits
        if failures >= _ROUNDS:
            raise problem
        _wait(job, problem, failures)


def _wait(job: Job, problem: HubError, failures: int) -> None:
    """A Hub that is busy is given time; where others come first, a moment is enough."""
    if isinstance(problem, Busy):
        job.patience.wait(problem, failures)
    else:
        job.patience.wait(Busy(problem.message, wait=0), 1)


class _Version:
    """The branch with the variants."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.before: Tree | None = None
        """The branch when this run first looked; empty when there was none."""

    def round(self) -> bool:
        """One step; True when nothing is left to do."""
        job, branch = self.job, self.job.target.branch
        refs = refs_of(job)
        head = refs.branches.get(branch)
        now = tree_of(job, head) if head else {}
        self.before = now if self.before is None else self.before
        if head is None:
            return self._found(refs)
        self._refuse_overtaken(now)
        wanted = version_changes(job.layout, now, is_new=False)
        if not wanted:
            self._clear_away(refs)
            return True
        if job.target.pull:
            return propose(job, refs, branch, wanted)
        commit_all(job, branch, head, wanted)
        return False

    def _found(self, refs: Refs) -> bool:
        """Make the branch, complete from its first moment on."""
        job, branch = self.job, self.job.target.branch
        if job.target.pull:
            hint = "upload the version without --create-pr first"
            raise HubError(f"{job.repo} has no branch `{branch}` for a pull request", hint=hint)
        staging = staging_name(branch, job.layout)
        head = refs.branches.get(staging) or self._stage(staging, refs)
        wanted = version_changes(job.layout, tree_of(job, head), is_new=True)
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

    def _refuse_overtaken(self, now: Tree) -> None:
        changed = overtaken(self.job.layout, self.before or {}, now)
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise HubError(
                f"somebody else changed `{changed[0]}`{more} on `{self.job.target.branch}` of "
                f"{self.job.repo} during this upload; nothing of it was overwritten",
                hint="`kbuild upload --dry-run` shows how it differs from this build now",
            )

    def _clear_away(self, refs: Refs) -> None:
        """Remove what uploads of this version were put together on; who still does starts anew."""
        job = self.job
        if job.target.pull:
            return
        for name in staging_names(job.target.branch, refs.branches):
            job.patience.persist(lambda name=name: job.hub.delete_branch(job.repo, name))  # type: ignore[misc]


class _Card:
    """`README.md` and its charts on `main`; the last upload decides."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def round(self) -> bool:
        """One step; True when nothing is left to do."""
        job = self.job
        refs = refs_of(job)
        head = refs.branches[MAIN]
        wanted = card_changes(job.layout, tree_of(job, head))
        if not wanted:
            return True
        if job.target.pull:
            return propose(job, refs, MAIN, wanted)
        commit_all(job, MAIN, head, wanted)
        return False
