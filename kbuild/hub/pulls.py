"""Changes as a pull request: opened by the first commit, continued by those that follow."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.hub.commits import commit_one, tree_of
from kbuild.hub.plan import Batch, Changes, batches
from kbuild.hub.target import Job, Proposal
from kbuild.hub.values import Refs, Tree

_RECENT = 5
"""Pull requests that are looked into for one that this upload, or an earlier try, has begun."""
_ATTRIBUTES = ".gitattributes"
"""The Hub writes into it which files are large."""


def propose(job: Job, refs: Refs, branch: str, wanted: Changes) -> bool:
    """Open a pull request against a branch, or go on with one that was begun; True when done.

    Raises:
        Busy: the Hub did not answer; what was opened is found again in the next round.
    """
    head = refs.branches[branch]
    before = tree_of(job, head)
    parts = batches(wanted)
    number, done = _begun(job, refs, before, parts)
    url = f"{job.hub.address}/{job.repo.page}/discussions/{number}"
    if done:
        job.say(f"going on with pull request {number}")
        head = refs.pulls[number]
    else:
        made = commit_one(job, branch, head, parts, 0, pull=True)
        number, url, head, done = made.pull or 0, made.url, made.id, 1
    for at in range(done, len(parts)):
        head = commit_one(job, f"refs/pr/{number}", head, parts, at).id
    job.proposals.append(Proposal(branch, number, url))
    return True


def _begun(job: Job, refs: Refs, before: Tree, parts: Sequence[Batch]) -> tuple[int, int]:
    """Number of a pull request that holds the first batches, and how many; zeros without one."""
    states = [_after(before, parts[:count]) for count in range(1, len(parts) + 1)]
    for number in sorted(refs.pulls, reverse=True)[:_RECENT]:
        tree = tree_of(job, refs.pulls[number])
        for done, state in reversed(tuple(enumerate(states, 1))):
            if _holds(tree, state):
                return number, done
    return 0, 0


State = dict[str, frozenset[str]]
"""By path, the hashes of which a file must have one."""


def _after(before: Tree, parts: Sequence[Batch]) -> State:
    state = {path: frozenset((file.sha256 or file.blob,)) for path, file in before.items()}
    for part in parts:
        state |= {entry.path: frozenset((entry.sha256, entry.blob)) for entry in part.adds}
        state = {path: hashes for path, hashes in state.items() if path not in part.deletes}
    return state


def _holds(tree: Tree, state: State) -> bool:
    if {*tree} - {_ATTRIBUTES} != {*state} - {_ATTRIBUTES}:
        return False
    return all(
        (tree[path].sha256 or tree[path].blob) in hashes
        for path, hashes in state.items()
        if path != _ATTRIBUTES
    )
