"""Commits, on a branch or as a pull request."""

from __future__ import annotations

from tests.support.hub.answers import Answer, Refused, reply
from tests.support.hub.drafts import Draft
from tests.support.hub.permissions import open_for
from tests.support.hub.repository import HEADS, Repository
from tests.support.hub.request import API, REVISION, Request, route
from tests.support.hub.values import Commit, Files, Pull

STALE = "A commit has happened since. Please refresh and try again."


@route("POST", f"{API}/commit/{REVISION}")
def commit(request: Request) -> Answer:
    """Everything in the payload, or nothing."""
    pull = request.flag("create_pr")
    repository = open_for(request, request["revision"], new_pull=pull)
    draft = Draft.parse(request.body.read(), request.hub.limits)
    if request.fault is not None and request.fault.kind == "stale":
        request.hub.overtake(repository, request["revision"])
    with request.hub.lock:
        ref = repository.branch(request["revision"])
        head = repository.resolve(ref)
        if draft.parent is not None and not head.oid.startswith(draft.parent):
            raise Refused(412, STALE)
        files = draft.apply(repository, head)
        author = request.logged_in().user
        if pull:
            return _as_pull(request, repository, draft, ref, head, files, author)
        made = repository.commit(ref, files, draft.summary, author, draft.description)
    return reply(_made(request, repository, made))


def _as_pull(
    request: Request,
    repository: Repository,
    draft: Draft,
    base: str,
    head: Commit,
    files: Files,
    author: str,
) -> Answer:
    made = repository.write(files, (head.oid,), draft.summary, author, draft.description)
    pull = new_pull(repository, draft.summary, author, base, draft.description)
    repository.move(pull.ref, made.oid, pull)
    url = f"{request.page_of(repository)}/discussions/{pull.num}"
    return reply({**_made(request, repository, made), "pullRequestUrl": url})


def new_pull(repository: Repository, title: str, author: str, base: str, text: str) -> Pull:
    num = max(repository.facts.pulls, default=0) + 1
    return Pull(num, title, author, base.removeprefix(HEADS), text)


def _made(request: Request, repository: Repository, made: Commit) -> dict[str, object]:
    return {
        "success": True,
        "commitOid": made.oid,
        "commitUrl": f"{request.page_of(repository)}/commit/{made.oid}",
        "hookOutput": "",
    }
