"""Repositories themselves: create, delete, show, hide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.hub.answers import Answer, Refused, reply
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


@route("DELETE", "/api/repos/delete")
def delete(request: Request) -> Answer:
    _, kind, name = _named(request)
    request.hub.delete(request.hub.writable(kind, name, request.account))
    return Answer(204)


@route("PUT", f"{API}/settings")
def settings(request: Request) -> Answer:
    repository = request.writable()
    payload = request.body.json()
    private = payload.get("visibility") == "private" or bool(payload.get("private"))
    with request.hub.lock:
        repository.save(replace(repository.facts, private=private))
    return reply({"private": private})


@route("GET", f"{API}/auth-check(?P<write>/write)?")
def auth_check(request: Request) -> Answer:
    (request.writable if "write" in request.arguments else request.repository)()
    return reply({})


@route("GET", API)
@route("GET", f"{API}/revision/{REVISION}")
def show(request: Request) -> Answer:
    repository = request.repository()
    commit = repository.resolve(request.arguments.get("revision", "main"))
    return reply(_described(repository, commit, blobs=request.flag("blobs")))


def _described(repository: Repository, commit: Commit, *, blobs: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
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
    if repository.kind != "kernels":  # kernel repositories do not list their files here
        data["siblings"] = [_sibling(path, commit, blobs=blobs) for path in sorted(commit.files)]
    return data


def _sibling(path: str, commit: Commit, *, blobs: bool) -> dict[str, Any]:
    if not blobs:
        return {"rfilename": path}
    entry = commit.files[path]
    row: dict[str, Any] = {"rfilename": path, "size": entry.size, "blobId": entry.oid}
    lfs = entry.lfs()
    if lfs:
        row["lfs"] = {"sha256": lfs["oid"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}
    return row


@route("GET", f"{API}/xet-(?:write|read)-token/{REVISION}")
def xet(request: Request) -> Answer:
    """There is no Xet here: clients have to use LFS."""
    request.repository()
    raise Refused(404, "Xet is not enabled", "XetNotEnabled")
