"""Where large objects are sent: an object store that knows no tokens, only signed URLs."""

from __future__ import annotations

from tests.support.hub.answers import Answer, Refused
from tests.support.hub.endpoints.downloads import STORED
from tests.support.hub.files import store
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


@route("PUT", f"/upload/{STORED}", storage=True)
def upload(request: Request) -> Answer:
    """A whole object."""
    repository = _repository(request)
    if not store(repository.large(request["oid"]), request.body, request["oid"]):
        raise Refused(400, "BadDigest")
    return Answer(200, headers={"ETag": f'"{request["oid"]}"'})
