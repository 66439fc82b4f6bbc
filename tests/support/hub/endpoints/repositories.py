"""Repositories themselves: create, show."""

from __future__ import annotations

from typing import Any

from tests.support.hub.answers import Answer, reply
from tests.support.hub.repository import Repository
from tests.support.hub.request import API, REVISION, Request, route
from tests.support.hub.values import Commit


def _named(request: Request) -> tuple[dict[str, Any], str, str]:
    """The payload, and the kind and full name that it says."""
    payload = request.body.json()
    namespace = payload.get("organization") or request.logged_in().user
    return payload, f"{payload.get('type') or 'model'}s", f"{namespace}/{payload.get('name')}"


@route("POST", "/api/repos/create")
def create(request: Request) -> Answer:
    payload, kind, name = _named(request)
    request.hub.check_rights(request.account, name.partition("/")[0])
    private = payload.get("visibility") == "private" or bool(payload.get("private"))
    with request.hub.lock:
        found = request.hub.find(kind, name)
        made = found or request.hub.create(kind, name, private=private)
    answer = {"url": request.page_of(made), "name": made.name}
    if found is not None:  # clients that do not mind read the URL from the refusal
        return reply({**answer, "error": "You already created this repo"}, 409)
    return reply(answer)


@route("GET", API)
@route("GET", f"{API}/revision/{REVISION}")
def show(request: Request) -> Answer:
    repository = request.repository()
    commit = repository.resolve(request.arguments.get("revision", "main"))
    return reply(_described(repository, commit))


def _described(repository: Repository, commit: Commit) -> dict[str, Any]:
    # Without a list of files, which kernel repositories do not have here.
    return {
        "_id": commit.oid[:24],
        "id": repository.name,
        "author": repository.namespace,
        "sha": commit.oid,
        "lastModified": commit.date,
        "createdAt": repository.facts.created,
        "private": repository.facts.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
    }
