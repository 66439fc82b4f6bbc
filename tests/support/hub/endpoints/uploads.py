"""Before a commit: which files are large, and where large ones are sent."""

from __future__ import annotations

import base64
from typing import Any

from tests.support.hub.answers import Answer, Refused, reply
from tests.support.hub.attributes import is_large
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
    files = [_judged(request, row, commit, attributes) for row in rows]
    return reply({"files": files, "commitOid": commit.oid})


def _judged(
    request: Request, row: dict[str, Any], commit: Commit, attributes: str
) -> dict[str, Any]:
    path = row["path"]
    sample = base64.b64decode(row.get("sample", ""))
    big = row.get("size", 0) >= request.hub.limits.large_from
    large = big or b"\0" in sample or is_large(path, attributes)  # binary goes to LFS: assumed
    mode = "lfs" if large else "regular"
    known = commit.files.get(path)
    found = {"path": path, "uploadMode": mode, "shouldIgnore": False}
    return {**found, "oid": known.etag} if known else found


def text_of(repository: Repository, commit: Commit, path: str) -> str:
    entry = commit.files.get(path)
    return repository.content(entry).read_text("utf-8") if entry else ""


@route("POST", rf"{PAGE}\.git/info/lfs/objects/batch")
def batch(request: Request) -> Answer:
    """Where to send each object; nowhere when it is here already."""
    payload = request.body.json()
    ref = (payload.get("ref") or {}).get("name")
    repository = open_for(request, ref, new_pull=ref is None)
    rows = [_upload(request, repository, row) for row in payload["objects"]]
    return reply({"transfer": "basic", "objects": rows}, headers={"Content-Type": LFS_TYPE})


def _upload(request: Request, repository: Repository, row: dict[str, Any]) -> dict[str, Any]:
    oid, size = str(row["oid"]), int(row["size"])
    answer: dict[str, Any] = {"oid": oid, "size": size}
    if repository.large(oid).exists():
        return answer
    place = f"{repository.kind}/{repository.name}/{oid}"
    upload = {"href": signed(request, request.storage, f"/upload/{place}", size=str(size))}
    verify = {"href": f"{request.endpoint}/api/lfs-verify/{repository.kind}/{repository.name}"}
    return {**answer, "actions": {"upload": upload, "verify": verify}}


@route("POST", r"/api/lfs-verify/(?P<kind>\w+)/(?P<name>[^/]+/[^/]+)")
def verify(request: Request) -> Answer:
    """The client asks whether what it has sent has come."""
    repository = request.repository()
    payload = request.body.json()
    path = repository.large(str(payload["oid"]))
    if not path.exists() or path.stat().st_size != payload["size"]:
        raise Refused(404, "The object is not here")
    return reply({})
