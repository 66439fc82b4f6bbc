"""Before a commit: which files are large, and where large ones are sent."""

from __future__ import annotations

import base64
from math import ceil
from typing import Any

from tests.support.hub.answers import Answer, Refused, reply
from tests.support.hub.attributes import is_ignored, is_large
from tests.support.hub.permissions import open_for
from tests.support.hub.repository import Repository
from tests.support.hub.request import API, PAGE, REVISION, Request, route
from tests.support.hub.serving import signed
from tests.support.hub.values import Commit

LFS_TYPE = "application/vnd.git-lfs+json"


@route("POST", f"{API}/preupload/{REVISION}")
def preupload(request: Request) -> Answer:
    """For each file: regular or large, left out or not, and what the revision has there now."""
    pull = request.flag("create_pr")
    repository = open_for(request, request["revision"], new_pull=pull)
    commit = repository.resolve(request["revision"])
    payload = request.body.json()
    rows = payload.get("files", [])
    if len(rows) > request.hub.limits.preupload_files:
        raise Refused(413, "too many files")
    attributes = text_of(repository, commit, ".gitattributes")
    ignored = payload.get("gitIgnore") or text_of(repository, commit, ".gitignore")
    files = [_judged(request, row, commit, attributes, ignored) for row in rows]
    return reply({"files": files, "commitOid": commit.oid})


def _judged(
    request: Request, row: dict[str, Any], commit: Commit, attributes: str, ignored: str
) -> dict[str, Any]:
    path = row["path"]
    sample = base64.b64decode(row.get("sample", ""))
    big = row.get("size", 0) >= request.hub.limits.large_from
    large = big or b"\0" in sample or is_large(path, attributes)  # binary goes to LFS: assumed
    mode = "lfs" if large else "regular"
    known = commit.files.get(path)
    found = {"path": path, "uploadMode": mode, "shouldIgnore": is_ignored(path, ignored)}
    return {**found, "oid": known.etag} if known else found


def text_of(repository: Repository, commit: Commit, path: str) -> str:
    entry = commit.files.get(path)
    return repository.content(entry).read_text("utf-8") if entry else ""


@route("POST", rf"{PAGE}\.git/info/lfs/objects/batch")
def batch(request: Request) -> Answer:
    """Where to send each object; nowhere when it is here already."""
    payload = request.body.json()
    if payload.get("operation") == "download":
        return _downloads(request, payload["objects"])
    ref = (payload.get("ref") or {}).get("name")
    repository = open_for(request, ref, new_pull=ref is None)
    part = request.hub.limits.part_size
    several = part is not None and "multipart" in payload.get("transfers", [])
    rows = [
        _upload(request, repository, row, part if several else None) for row in payload["objects"]
    ]
    transfer = "multipart" if several else "basic"
    return reply({"transfer": transfer, "objects": rows}, headers={"Content-Type": LFS_TYPE})


def _upload(
    request: Request, repository: Repository, row: dict[str, Any], part: int | None
) -> dict[str, Any]:
    oid, size = str(row["oid"]), int(row["size"])
    answer: dict[str, Any] = {"oid": oid, "size": size}
    if repository.large(oid).exists():
        return answer
    place = f"{repository.kind}/{repository.name}/{oid}"
    if part is None or size <= part:
        upload: dict[str, Any] = {
            "href": signed(request, request.storage, f"/upload/{place}", size=str(size))
        }
    else:
        count = ceil(size / part)
        urls = {
            str(number): signed(request, request.storage, f"/part/{place}/{number}")
            for number in range(1, count + 1)
        }
        href = signed(request, request.endpoint, f"/api/complete_multipart/{place}", size=str(size))
        upload = {"href": href, "header": {"chunk_size": str(part), **urls}}
    verify = {"href": f"{request.endpoint}/api/lfs-verify/{repository.kind}/{repository.name}"}
    return {**answer, "actions": {"upload": upload, "verify": verify}}


def _downloads(request: Request, objects: list[dict[str, Any]]) -> Answer:
    repository = request.repository()
    place = f"/download/{repository.kind}/{repository.name}"
    rows: list[dict[str, Any]] = []
    for row in objects:
        if repository.large(row["oid"]).exists():
            href = signed(request, request.storage, f"{place}/{row['oid']}")
            rows.append({**row, "actions": {"download": {"href": href}}})
        else:
            rows.append({**row, "error": {"code": 404, "message": "Object does not exist"}})
    return reply({"transfer": "basic", "objects": rows}, headers={"Content-Type": LFS_TYPE})


@route("POST", r"/api/lfs-verify/(?P<kind>\w+)/(?P<name>[^/]+/[^/]+)")
def verify(request: Request) -> Answer:
    """The client asks whether what it has sent has come."""
    repository = request.repository()
    payload = request.body.json()
    path = repository.large(str(payload["oid"]))
    if not path.exists() or path.stat().st_size != payload["size"]:
        raise Refused(404, "The object is not here")
    return reply({})
