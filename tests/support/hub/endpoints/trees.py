"""Which files a revision has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlencode

from tests.support.hub.answers import Answer, Refused, no_entry, reply
from tests.support.hub.repository import Repository
from tests.support.hub.request import API, REVISION, Request, route
from tests.support.hub.values import Commit, folder_ids


@route("GET", f"{API}/tree/{REVISION}(?:/(?P<path>.+))?")
def tree(request: Request) -> Answer:
    """A folder, page by page; the next page is in the `Link` header."""
    repository = request.repository()
    commit = repository.resolve(request["revision"])
    folder = request.arguments.get("path", "").strip("/")
    expand = request.flag("expand")
    paths = _inside(commit, folder, recursive=request.flag("recursive"))
    after = request.first("cursor")
    limits = request.hub.limits
    size = limits.expanded_page if expand else limits.page
    left = [path for path in paths if path > after]
    rows = _described(repository, commit, left[:size], expand=expand)
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


@route("POST", f"{API}/paths-info/{REVISION}")
def paths_info(request: Request) -> Answer:
    """Some paths; those that do not exist are left out."""
    repository = request.repository()
    commit = repository.resolve(request["revision"])
    paths, expand = _asked(request)
    if len(paths) > request.hub.limits.paths:
        raise Refused(413, "too many parameters")
    folders = folder_ids(commit.files)
    known = [path for path in paths if path in commit.files or path in folders]
    return reply(_described(repository, commit, known, expand=expand))


def _asked(request: Request) -> tuple[list[str], bool]:
    if "json" in request.headers.get("Content-Type", ""):
        payload = request.body.json()
        return payload.get("paths", []), bool(payload.get("expand"))
    form = parse_qs(request.body.read().decode())
    paths = [path.strip("/") for path in form.get("paths", [])]
    return paths, form.get("expand", [""])[0].lower() == "true"


def _described(
    repository: Repository, commit: Commit, paths: list[str], *, expand: bool
) -> list[dict[str, Any]]:
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
        if expand:
            last = _last(repository, commit, path)
            row["lastCommit"] = {"id": last.oid, "title": last.title, "date": last.date}
        rows.append(row)
    return rows


def _last(repository: Repository, commit: Commit, path: str) -> Commit:
    """The newest commit that has changed a path."""

    def state(at: Commit) -> object:
        return at.files.get(path) or {p: e for p, e in at.files.items() if p.startswith(f"{path}/")}

    history = repository.history(commit)
    for newer, older in pairwise(history):
        if state(newer) != state(older):
            return newer
    return history[-1]
