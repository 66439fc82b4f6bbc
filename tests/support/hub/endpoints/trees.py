"""Which files a revision has."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.support.hub.answers import Answer, no_entry, reply
from tests.support.hub.request import API, REVISION, Request, route
from tests.support.hub.values import Commit, folder_ids


@route("GET", f"{API}/tree/{REVISION}(?:/(?P<path>.+))?")
def tree(request: Request) -> Answer:
    """A folder, page by page; the next page is in the `Link` header."""
    repository = request.repository()
    commit = repository.resolve(request["revision"])
    folder = request.arguments.get("path", "").strip("/")
    paths = _inside(commit, folder, recursive=request.flag("recursive"))
    after = request.first("cursor")
    size = request.hub.limits.page
    left = [path for path in paths if path > after]
    rows = _described(commit, left[:size])
    headers = {"X-Repo-Commit": commit.oid}
    if len(left) > size:
        kept = {name: values[0] for name, values in request.query.items()}
        query = urlencode({**kept, "cursor": left[size - 1]})
        headers["Link"] = f'<{request.endpoint}{request.path}?{query}>; rel="next"'
    return reply(rows, headers=headers)


def _inside(commit: Commit, folder: str, *, recursive: bool) -> list[str]:
    """Files and folders below a folder.

    Raises:
        Refused: there is no such folder.
    """
    prefix = f"{folder}/" if folder else ""
    everything = {*commit.files, *folder_ids(commit.files)} - {"", folder}
    below = {path for path in everything if path.startswith(prefix)}
    if folder and not below:
        raise no_entry(f'{folder} does not exist on "{commit.oid}"', commit.oid)
    direct = {path for path in below if "/" not in path.removeprefix(prefix)}
    return sorted(below if recursive else direct)


def _described(commit: Commit, paths: list[str]) -> list[dict[str, Any]]:
    folders = folder_ids(commit.files)
    rows = []
    for path in paths:
        row: dict[str, Any] = {"type": "directory", "oid": folders.get(path, ""), "size": 0}
        if path in commit.files:
            entry = commit.files[path]
            row = {"type": "file", "oid": entry.oid, "size": entry.size}
            if entry.sha256:
                row["lfs"] = entry.lfs()
        row["path"] = path
        rows.append(row)
    return rows
