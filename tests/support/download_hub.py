"""A Hub on this machine: the few addresses that `huggingface_hub` asks for, over HTTP."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

SHA = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
_REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
API = re.compile(
    rf"/api/(?P<kind>kernels|models)/{_REPO}/(?P<what>revision|tree)/(?P<revision>[^/]+)/?(?P<path>.*)"
)
FILE = re.compile(rf"/(?:kernels/)?{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass
class Repository:
    """One repository with one commit."""

    files: Mapping[str, bytes]
    kind: str = "kernels"
    revisions: tuple[str, ...] = ("v1", SHA)
    token: str = ""
    """What a request needs to bring; nothing when empty."""


@dataclass
class FakeHub:
    """Repositories by name, and what was asked for."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 0
    """Answer everything with that, when it is not 0."""


def serve(hub: FakeHub) -> ThreadingHTTPServer:
    """A server that answers for `hub`; not started yet."""
    return ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    hub: FakeHub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.asked.append(path)
        if self.hub.status:
            self._refuse(self.hub.status)
        elif match := API.fullmatch(path):
            self._api(match)
        elif match := FILE.fullmatch(path):
            self._file(match)
        else:
            self._refuse(404)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def _api(self, match: re.Match[str]) -> None:
        repository = self._repository(match["repo"])
        if repository is None or repository.kind != match["kind"]:
            self._refuse(404, "RepoNotFound")
        elif match["revision"] not in repository.revisions:
            self._refuse(404, "RevisionNotFound")
        elif match["what"] == "revision":
            self._json({"id": match["repo"], "sha": SHA})
        else:
            self._tree(repository, match["path"] or "")

    def _tree(self, repository: Repository, folder: str) -> None:
        below = [name for name in repository.files if name.startswith(folder)]
        if not below:
            self._refuse(404, "EntryNotFound")
        elif "recursive=true" in self.path.lower():
            self._json([_entry(name, repository.files[name]) for name in below])
        else:
            names = {name.removeprefix(f"{folder}/").partition("/")[0] for name in below}
            kinds = [{"type": "directory", "path": f"{folder}/{name}"} for name in sorted(names)]
            self._json([{"oid": SHA, **kind} for kind in kinds])

    def _file(self, match: re.Match[str]) -> None:
        repository = self._repository(match["repo"])
        data = repository.files.get(match["path"]) if repository else None
        if data is None:
            self._refuse(404, "EntryNotFound")
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')  # noqa: S324
        self.send_header("X-Repo-Commit", SHA)
        self._body(data)

    def _repository(self, name: str) -> Repository | None:
        found = self.hub.repositories.get(name)
        if found is None or not found.token:
            return found
        return found if self.headers.get("Authorization") == f"Bearer {found.token}" else None

    def _json(self, value: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self._body(json.dumps(value).encode())

    def _refuse(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self._body(b"{}")

    def _body(self, data: bytes) -> None:
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _entry(path: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(data).hexdigest()  # noqa: S324
    return {"type": "file", "path": path, "size": len(data), "oid": oid}
