"""Where large objects are sent: an object store that knows no tokens, only signed URLs."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.support.hub.answers import Answer, Refused, reply
from tests.support.hub.endpoints.downloads import STORED
from tests.support.hub.files import chunks_of, store
from tests.support.hub.repository import Repository
from tests.support.hub.request import Request, route
from tests.support.hub.serving import check_signature


def _repository(request: Request) -> Repository:
    """The repository of a URL that the Hub has made."""
    check_signature(request)
    found = request.hub.find(request["kind"], request["name"])
    if found is None:
        raise Refused(404, "No such bucket")
    return found


def _parts(repository: Repository, oid: str) -> Path:
    return repository.folder / "parts" / oid


@route("PUT", f"/upload/{STORED}", storage=True)
def upload(request: Request) -> Answer:
    """A whole object."""
    repository = _repository(request)
    if not store(repository.large(request["oid"]), request.body, request["oid"]):
        raise Refused(400, "BadDigest")
    return Answer(200, headers={"ETag": f'"{request["oid"]}"'})


@route("PUT", f"/part/{STORED}/(?P<number>[0-9]+)", storage=True)
def part(request: Request) -> Answer:
    """One part; sending it again replaces it."""
    repository = _repository(request)
    path = _parts(repository, request["oid"]) / f"{int(request['number']):05d}"
    store(path, request.body)
    return Answer(200, headers={"ETag": f'"{_etag(path)}"'})


def _etag(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


@route("POST", f"/api/complete_multipart/{STORED}")
def complete(request: Request) -> Answer:
    """Put the parts together; asking twice does no harm."""
    repository = _repository(request)
    oid = request["oid"]
    if not repository.large(oid).exists():
        folder = _parts(repository, oid)
        paths = [_checked(folder, row) for row in request.body.json().get("parts", [])]
        if not store(repository.large(oid), chunks_of(*paths), oid):
            raise Refused(400, "The parts do not make up the object")
        shutil.rmtree(folder, ignore_errors=True)
    return reply({"success": True})


def _checked(folder: Path, row: dict[str, object]) -> Path:
    path = folder / f"{int(str(row['partNumber'])):05d}"
    if not path.exists() or _etag(path) != str(row["etag"]).strip('"'):
        raise Refused(400, f"InvalidPart: {row['partNumber']}")
    return path
