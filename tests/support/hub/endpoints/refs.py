"""Branches."""

from __future__ import annotations

from typing import Any

from tests.support.hub.answers import Answer, Refused, no_revision, reply
from tests.support.hub.repository import HEADS, Repository
from tests.support.hub.request import API, Request, route


@route("GET", f"{API}/refs")
def refs(request: Request) -> Answer:
    repository = request.repository()
    answer: dict[str, Any] = {
        "branches": _rows(repository, HEADS, HEADS),
        "converts": [],
        "tags": [],
    }
    if request.flag("include_prs"):
        answer["pullRequests"] = _rows(repository, "refs/pr/", "refs/")
    return reply(answer)


def _rows(repository: Repository, prefix: str, cut: str) -> list[dict[str, str]]:
    return [
        {"name": ref.removeprefix(cut), "ref": ref, "targetCommit": oid}
        for ref, oid in sorted(repository.facts.refs.items())
        if ref.startswith(prefix)
    ]


@route("POST", f"{API}/branch/(?P<branch>.+)")
def create_branch(request: Request) -> Answer:
    repository = request.writable()
    start = request.body.json().get("startingPoint") or "main"
    return _create(request, repository, HEADS + request["branch"], start)


def _create(request: Request, repository: Repository, ref: str, start: str) -> Answer:
    with request.hub.lock:
        if ref in repository.facts.refs:
            raise Refused(409, f"Reference {ref} already exists")
        repository.move(ref, repository.resolve(start).oid)
    return reply({"ref": ref}, 201)


@route("DELETE", f"{API}/branch/(?P<branch>.+)")
def delete_branch(request: Request) -> Answer:
    if request["branch"] == "main":
        raise Refused(400, "The main branch cannot be deleted")
    ref, repository = HEADS + request["branch"], request.writable()
    with request.hub.lock:
        if ref not in repository.facts.refs:
            raise no_revision(ref)
        repository.move(ref, None)
    return reply({})
