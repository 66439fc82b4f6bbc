"""The answers of the Hub: a table of routes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

from tests.support.hub.state import HEADS, Account, Commit, Entry, Hub, Pull, Refused, Repository

PAGE_ROWS = 500
"""Rows of one answer about a tree; the real Hub has 1000."""
LARGE_FROM = 10 << 20
LARGE_ENDINGS = (".bin", ".so")
SIGNED = {"signature": "signed-by-the-hub"}
"""What URLs of the storage have in place of a token; no message may show it."""


@dataclass
class Request:
    """One request, after its route was found."""

    hub: Hub
    endpoint: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    account: Account | None
    is_overtaken: bool = False
    """Somebody else commits first."""
    arguments: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.arguments[name]

    def first(self, name: str) -> str:
        """The first value of a parameter of the query."""
        return self.query.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        return self.first(name).lower() in ("1", "true")

    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    def logged_in(self) -> Account:
        if self.account is None:
            raise Refused(401, "Invalid username or password.")
        return self.account

    def repository(self) -> Repository:
        """The repository that the path names, if the account may see it."""
        found = self.hub.find(self["name"])
        own = self.account is not None and found and self.account.is_member(found.namespace)
        if found is None or (found.private and not own):
            # Missing, or private: the Hub does not say which, and tells strangers to log in.
            raise Refused(404 if self.account else 401, "Repository not found", "RepoNotFound")
        return found

    def writable(self, namespace: str = "") -> Account:
        """The account, if it may write to the namespace or to that of the repository."""
        namespace = namespace or self.repository().namespace
        account = self.logged_in()
        if account.role != "write" or not account.is_member(namespace):
            raise Refused(403, f"You don't have the rights to write to {namespace}")
        return account

    def open_for(self, *, pull: bool) -> Repository:
        """A repository to add to; everybody who is logged in may open a pull request."""
        if pull:
            self.logged_in()
        else:
            self.writable()
        return self.repository()

    def page_of(self, repository: Repository) -> str:
        return f"{self.endpoint}/kernels/{repository.name}"


@dataclass(frozen=True)
class Answer:
    """A status, a body and headers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON answer."""
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(status, json.dumps(value).encode(), {**kind, **(headers or {})})


Handler = Callable[[Request], Answer]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []
API = r"/api/kernels/(?P<name>[^/]+/[^/]+?)"
PAGE = r"/(?:kernels/)?(?P<name>[^/]+/[^/]+?)"
REVISION = r"(?P<revision>refs/(?:pr|heads)/[^/]+|[^/]+)"


def route(method: str, pattern: str) -> Callable[[Handler], Handler]:
    """Answer a method on paths that match; `HEAD` goes where `GET` goes."""

    def add(handler: Handler) -> Handler:
        ROUTES.append((method, re.compile(pattern), handler))
        return handler

    return add


def find_handler(method: str, request: Request) -> Handler | None:
    """The handler of a request, whose arguments are set; None when no route matches."""
    for known, pattern, handler in ROUTES:
        found = pattern.fullmatch(request.path)
        if found and known == method.replace("HEAD", "GET"):
            request.arguments = {k: unquote(v) for k, v in found.groupdict().items() if v}
            return handler
    return None


@route("GET", "/api/whoami-v2")
def whoami(request: Request) -> Answer:
    account = request.logged_in()
    organisations = [
        {"type": "org", "name": name, "roleInOrg": account.role} for name in account.organisations
    ]
    token = {"displayName": "test", "role": account.role}
    auth = {"type": "access_token", "accessToken": token}
    return reply({"type": "user", "name": account.user, "orgs": organisations, "auth": auth})


@route("GET", "/api/organizations/(?P<organisation>[^/]+)/overview")
def overview(request: Request) -> Answer:
    """The client loads kernels of trusted publishers without being told to trust them."""
    name = request["organisation"]
    return reply({"name": name, "trustedKernelPublisher": name in request.hub.trusted})


@route("GET", "/api/agent-harnesses")
def harnesses(_: Request) -> Answer:
    """huggingface_hub asks once a day which environment variables name an agent: none do here."""
    return reply({"standardEnvVars": [], "harnesses": {}})


@route("POST", "/api/validate-yaml")
def validate(_: Request) -> Answer:
    """The metadata of a README, which huggingface_hub has checked before it commits one."""
    return reply({"errors": [], "warnings": []})


@route("POST", "/api/repos/create")
def create(request: Request) -> Answer:
    payload = request.json()
    namespace = payload.get("organization") or request.logged_in().user
    request.writable(namespace)
    private = payload.get("visibility") == "private" or bool(payload.get("private"))
    with request.hub.lock:
        name = f"{namespace}/{payload['name']}"
        found = request.hub.find(name)
        made = found or request.hub.create(name, private=private)
    answer = {"url": request.page_of(made), "name": made.name}
    # Clients that do not mind read the URL from the refusal.
    return (
        reply({**answer, "error": "You already created this repo"}, 409)
        if found
        else (reply(answer))
    )


@route("GET", API)
@route("GET", f"{API}/revision/{REVISION}")
def show(request: Request) -> Answer:
    repository = request.repository()
    commit = repository.resolve(request.arguments.get("revision", "main"))
    facts = {"id": repository.name, "sha": commit.oid, "private": repository.private}
    return reply({**facts, "_id": commit.oid[:24], "author": repository.namespace, "tags": []})


@route("GET", f"{API}/refs")
def refs(request: Request) -> Answer:
    repository = request.repository()

    def rows(prefix: str, cut: str) -> list[dict[str, str]]:
        return [
            {"name": ref.removeprefix(cut), "ref": ref, "targetCommit": oid}
            for ref, oid in sorted(repository.refs.items())
            if ref.startswith(prefix)
        ]

    pulls = {"pullRequests": rows("refs/pr/", "refs/")} if request.flag("include_prs") else {}
    return reply({"branches": rows(HEADS, HEADS), "converts": [], "tags": [], **pulls})


@route("POST", f"{API}/branch/(?P<branch>.+)")
def create_branch(request: Request) -> Answer:
    request.writable()
    repository, ref = request.repository(), HEADS + request["branch"]
    with request.hub.lock:
        if ref in repository.refs:
            raise Refused(409, f"Reference {ref} already exists")
        start = request.json().get("startingPoint") or "main"
        repository.move(ref, repository.resolve(start).oid)
    return reply({"ref": ref}, 201)


@route("DELETE", f"{API}/branch/(?P<branch>.+)")
def delete_branch(request: Request) -> Answer:
    request.writable()
    with request.hub.lock:
        request.repository().move(HEADS + request["branch"], None)
    return reply({})


@route("GET", f"{API}/tree/{REVISION}(?:/(?P<path>.+))?")
def tree(request: Request) -> Answer:
    """A folder, page by page; the next page is in the `Link` header."""
    commit = request.repository().resolve(request["revision"])
    folder = request.arguments.get("path", "").strip("/")
    prefix = f"{folder}/" if folder else ""
    parents = {p[:at] for p in commit.files for at, letter in enumerate(p) if letter == "/"}
    below = {path for path in {*commit.files, *parents} if path.startswith(prefix)}
    if folder and not below:
        raise Refused(404, f'{folder} does not exist on "{commit.oid}"', "EntryNotFound")
    if not request.flag("recursive"):
        below = {path for path in below if "/" not in path.removeprefix(prefix)}
    left = [path for path in sorted(below) if path > request.first("cursor")]
    headers = {"X-Repo-Commit": commit.oid}
    if len(left) > PAGE_ROWS:
        kept = {name: values[0] for name, values in request.query.items()}
        query = urlencode({**kept, "cursor": left[PAGE_ROWS - 1]})
        headers["Link"] = f'<{request.endpoint}{request.path}?{query}>; rel="next"'
    return reply([_row(path, commit.files.get(path)) for path in left[:PAGE_ROWS]], 200, headers)


def _row(path: str, entry: Entry | None) -> dict[str, Any]:
    if entry is None:
        oid = hashlib.sha1(path.encode()).hexdigest()  # noqa: S324
        return {"type": "directory", "oid": oid, "size": 0, "path": path}
    row: dict[str, Any] = {"type": "file", "oid": entry.oid, "size": len(entry.data), "path": path}
    if entry.is_large:
        own = {"oid": entry.sha256, "size": len(entry.data), "pointerSize": len(entry.pointer)}
        row["lfs"] = own
    return row


@route("GET", f"{PAGE}/resolve/{REVISION}/(?P<path>.+)")
def resolve(request: Request) -> Answer:
    """A file of a revision, or where it is."""
    repository = request.repository()
    commit = repository.resolve(request["revision"])
    headers = {"X-Repo-Commit": commit.oid}
    entry = commit.files.get(request["path"])
    if entry is None:
        raise Refused(404, "Entry not found", "EntryNotFound")
    if not entry.is_large:
        return Answer(200, entry.data, {"ETag": f'"{entry.oid}"', **headers})
    large = {"ETag": f'"{entry.sha256}"', "X-Linked-Etag": f'"{entry.sha256}"'}
    place = _stored_at(request, repository, entry.sha256)
    more = {"Location": place, "X-Linked-Size": str(len(entry.data))}
    return Answer(302, headers={**headers, **large, **more})


def _stored_at(request: Request, repository: Repository, sha256: str) -> str:
    # Another host, as on the Hub: clients follow redirects to the same one themselves.
    host = request.endpoint.replace("127.0.0.1", "localhost")
    return f"{host}/storage/{quote(repository.name)}/{sha256}?{urlencode(SIGNED)}"


STORED = r"/storage/(?P<name>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})"


@route("GET", STORED)
def download(request: Request) -> Answer:
    """A large object."""
    data = request.hub.repository(request["name"]).stored[request["oid"]]
    return Answer(200, data, {"ETag": f'"{request["oid"]}"'})


@route("PUT", STORED)
def upload(request: Request) -> Answer:
    """A whole large object."""
    if request.first("signature") != SIGNED["signature"]:
        raise Refused(403, "The signature does not match")
    if hashlib.sha256(request.body).hexdigest() != request["oid"]:
        raise Refused(400, "BadDigest")
    request.hub.repository(request["name"]).stored[request["oid"]] = request.body
    return Answer()


@route("POST", f"{API}/preupload/{REVISION}")
def preupload(request: Request) -> Answer:
    """For each file: regular or large, and what the revision has there now."""
    repository = request.open_for(pull=request.flag("create_pr"))
    commit = repository.resolve(request["revision"])

    def judged(row: dict[str, Any]) -> dict[str, Any]:
        sample, path = base64.b64decode(row.get("sample", "")), row["path"]
        is_large = row["size"] >= LARGE_FROM or b"\0" in sample or path.endswith(LARGE_ENDINGS)
        known = commit.files.get(path)
        oid = {"oid": known.sha256 if known.is_large else known.oid} if known else {}
        mode = "lfs" if is_large else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, **oid}

    rows = [judged(row) for row in request.json()["files"]]
    return reply({"files": rows, "commitOid": commit.oid})


@route("POST", rf"{PAGE}\.git/info/lfs/objects/batch")
def batch(request: Request) -> Answer:
    """Where to send each object; nowhere when it is here already."""
    payload = request.json()
    repository = request.open_for(pull=not (payload.get("ref") or {}).get("name"))
    rows = []
    for row in payload["objects"]:
        own = {"oid": row["oid"], "size": row["size"]}
        if row["oid"] not in repository.stored:
            place = _stored_at(request, repository, row["oid"])
            verify = f"{request.endpoint}/api/lfs-verify/{repository.name}"
            own["actions"] = {"upload": {"href": place}, "verify": {"href": verify}}
        rows.append(own)
    kind = {"Content-Type": "application/vnd.git-lfs+json"}
    return reply({"transfer": "basic", "objects": rows}, 200, kind)


@route("POST", r"/api/lfs-verify/(?P<name>[^/]+/[^/]+)")
def verify(request: Request) -> Answer:
    """The client asks whether what it has sent has come."""
    if request.json().get("oid") not in request.repository().stored:
        raise Refused(404, "The object is not here")
    return reply({})


@route("POST", f"{API}/commit/{REVISION}")
def commit(request: Request) -> Answer:
    """Everything in the payload, or nothing."""
    is_pull = request.flag("create_pr")
    repository = request.open_for(pull=is_pull)
    rows = [json.loads(line) for line in request.body.splitlines() if line.strip()]
    header, *operations = [(row["key"], row["value"]) for row in rows]
    summary, parent = header[1]["summary"], header[1].get("parentCommit")
    with request.hub.lock:
        head = repository.resolve(request["revision"])
        ref = repository.full_ref(request["revision"]) or ""
        if request.is_overtaken:
            head = repository.commit(ref, head.files, "Somebody was faster")
        if parent is not None and not head.oid.startswith(parent):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        files = _applied(repository, head, operations)
        if not is_pull:
            return _made(request, repository, repository.commit(ref, files, summary))
        num = max(repository.pulls, default=0) + 1
        made = repository.write(files, head.oid, summary)
        author = request.logged_in().user
        repository.pulls[num] = Pull(num, summary, author, ref.removeprefix(HEADS))
        repository.move(f"refs/pr/{num}", made.oid)
    page = f"{request.page_of(repository)}/discussions/{num}"
    return _made(request, repository, made, pullRequestUrl=page)


def _applied(
    repository: Repository, head: Commit, operations: list[tuple[str, Any]]
) -> dict[str, Entry]:
    """The files after a commit."""
    files = dict(head.files)
    for key, value in operations:
        path = value["path"]
        if key == "file":
            content = value["content"]
            is_encoded = value.get("encoding") == "base64"
            files[path] = Entry(base64.b64decode(content) if is_encoded else content.encode())
        elif key == "lfsFile":
            if value["oid"] not in repository.stored:
                raise Refused(400, f"LFS pointer of {path} points to an object that is not here")
            files[path] = Entry(repository.stored[value["oid"]], is_large=True)
        else:
            gone = [p for p in files if p == path or p.startswith(f"{path.rstrip('/')}/")]
            if not gone:
                raise Refused(404, f"This name doesn't exist: {path}", "EntryNotFound")
            for each in gone:
                del files[each]
    return files


def _made(request: Request, repository: Repository, made: Commit, **more: str) -> Answer:
    url = f"{request.page_of(repository)}/commit/{made.oid}"
    known = {"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""}
    return reply({**known, **more})
