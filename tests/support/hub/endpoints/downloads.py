"""Content: small files from the Hub, large ones from the storage."""

from __future__ import annotations

from tests.support.hub.answers import Answer, Refused, no_entry
from tests.support.hub.request import PAGE, REVISION, Request, route
from tests.support.hub.serving import check_signature, file_answer, signed


@route("GET", f"{PAGE}/resolve/{REVISION}/(?P<path>.+)")
def resolve(request: Request) -> Answer:
    """A file of a revision, or where it is."""
    repository = request.repository()
    commit = repository.resolve(request["revision"])
    entry = commit.files.get(request["path"])
    if entry is None:
        raise no_entry("Entry not found", commit.oid)
    headers = {"X-Repo-Commit": commit.oid}
    if entry.sha256 is None:
        return file_answer(request, repository.blob(entry.oid), entry.oid, headers)
    path = f"/download/{repository.kind}/{repository.name}/{entry.sha256}"
    return Answer(
        302,
        headers={
            **headers,
            "Location": signed(request, request.storage, path),
            "ETag": f'"{entry.sha256}"',
            "X-Linked-Etag": f'"{entry.sha256}"',
            "X-Linked-Size": str(entry.size),
        },
    )


STORED = r"(?P<kind>\w+)/(?P<name>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})"


@route("GET", f"/download/{STORED}", storage=True)
def download(request: Request) -> Answer:
    check_signature(request)
    repository = request.hub.find(request["kind"], request["name"])
    path = repository.large(request["oid"]) if repository else None
    if path is None or not path.exists():
        raise Refused(404, "No such object")
    return file_answer(request, path, request["oid"])
