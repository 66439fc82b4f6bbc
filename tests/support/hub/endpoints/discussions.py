"""Pull requests after they were opened: list, look at, merge, close."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.hub.answers import Answer, Refused, reply
from tests.support.hub.endpoints.commits import STALE, new_pull
from tests.support.hub.repository import HEADS, Repository
from tests.support.hub.request import API, Request, route
from tests.support.hub.values import Pull

ONE = f"{API}/discussions/(?P<num>[0-9]+)"


def _pull(request: Request, repository: Repository) -> Pull:
    found = repository.facts.pulls.get(int(request["num"]))
    if found is None:
        raise Refused(404, "Discussion not found")
    return found


def _row(repository: Repository, pull: Pull) -> dict[str, Any]:
    return {
        "num": pull.num,
        "title": pull.title,
        "author": {"name": pull.author},
        "createdAt": pull.created,
        "status": pull.status,
        "isPullRequest": True,
        "repo": {"name": repository.name, "type": repository.kind.removesuffix("s")},
    }


@route("POST", f"{API}/discussions")
def open_pull(request: Request) -> Answer:
    """An empty pull request against the main branch, to be committed to."""
    repository = request.repository()
    payload = request.body.json()
    author = request.logged_in().user
    if not payload.get("pullRequest"):
        raise Refused(400, "This Hub has pull requests, and no other discussions")
    with request.hub.lock:
        title, text = payload["title"], payload.get("description", "")
        pull = new_pull(repository, title, author, HEADS + "main", text)
        pull = replace(pull, status="draft")
        repository.move(pull.ref, repository.resolve("main").oid, pull)
    return reply(_row(repository, pull), 201)


@route("GET", f"{API}/discussions")
def listing(request: Request) -> Answer:
    repository = request.repository()
    wanted = request.first("status", "all")
    pulls = [p for p in repository.facts.pulls.values() if wanted in ("all", p.status)]
    rows = [_row(repository, pull) for pull in reversed(pulls)]
    return reply({"discussions": rows, "count": len(rows), "start": 0})


@route("GET", ONE)
def details(request: Request) -> Answer:
    repository = request.repository()
    pull = _pull(request, repository)
    changes = {"base": pull.base, "mergeCommitId": pull.merged_as}
    extra = {"changes": changes, "filesWithConflicts": [], "events": [], "diff": ""}
    return reply({**_row(repository, pull), **extra})


@route("POST", f"{ONE}/merge")
def merge(request: Request) -> Answer:
    """The base becomes what the pull request is, if nobody has moved it since."""
    repository = request.writable()
    with request.hub.lock:
        pull = _pull(request, repository)
        if pull.status not in ("open", "draft"):
            raise Refused(400, f"The pull request is {pull.status}")
        base = repository.branch(HEADS + pull.base)
        ours = [commit.oid for commit in repository.history(repository.resolve(pull.ref))]
        if repository.facts.refs[base] not in ours:
            raise Refused(412, STALE)
        merged = replace(pull, status="merged", merged_as=ours[0])
        repository.move(base, ours[0], merged)
    return reply({"mergeCommitId": ours[0]})


@route("POST", f"{ONE}/status")
def status(request: Request) -> Answer:
    repository = request.writable()
    wanted = request.body.json().get("status")
    if wanted not in ("open", "closed"):
        raise Refused(400, "A pull request is open or closed")
    with request.hub.lock:
        pull = replace(_pull(request, repository), status=wanted)
        pulls = {**repository.facts.pulls, pull.num: pull}
        repository.save(replace(repository.facts, pulls=pulls))
    data = {"status": wanted}
    event = {"id": str(pull.num), "type": "status-change", "createdAt": pull.created, "data": data}
    return reply({"newStatus": {**event, "author": {"name": request.logged_in().user}}})
