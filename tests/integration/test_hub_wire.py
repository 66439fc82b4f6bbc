"""The Hub of the tests as a bare HTTP client sees it: what no real client happens to do."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from http.client import BadStatusLine, HTTPConnection
from pathlib import Path

import pytest

from tests.support.hub.fixture import READ, ROOT, STRANGER, WRITE, HubBench, exchange, running_hub
from tests.support.hub.server import HubServer

START = "from huggingface_hub import *; api = HfApi()\n"


def test_ranges(hub: HubBench) -> None:
    hub.create("org/k")
    hub.commit("org/k", "main", {"a": "0123456789"})
    path = "/kernels/org/k/resolve/main/a"

    def ask(value: str) -> tuple[int, bytes, str | None]:
        reply = hub.ask("GET", path, headers={"Range": value})
        return reply.status, reply.body, reply.headers.get("Content-Range")

    assert ask("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert ask("bytes=7-") == (206, b"789", "bytes 7-9/10")
    assert ask("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert ask("bytes=10-")[::2] == (416, "bytes */10")
    whole = hub.ask("HEAD", path)
    assert (whole.status, whole.body, whole.headers["Content-Length"]) == (200, b"", "10")
    assert hub.ask("GET", path, headers={"If-None-Match": whole.headers["ETag"]}).status == 304


def test_who_may_do_what(hub: HubBench) -> None:
    hub.create("org/k", private=True)
    assert hub.ask("GET", "/api/whoami-v2", token=None).status == 401
    assert hub.ask("GET", "/api/whoami-v2", token="hf_wrong").status == 401  # noqa: S106
    assert hub.ask("GET", "/api/kernels/org/k/auth-check/write", token=READ).status == 403
    assert hub.ask("GET", "/api/kernels/org/k", token=READ).status == 200
    code = START + "api.repo_info('org/k', repo_type='kernel')"
    for token, status in ((STRANGER, 404), (None, 401)):
        error = hub.python(code, token=token)
        assert (error["error"], error["status"]) == ("RepositoryNotFoundError", status)
    for token in (READ, STRANGER):
        error = hub.python(START + "api.create_repo('org/new', repo_type='kernel')", token=token)
        assert error["status"] == 403
    hub.ask("PUT", "/api/kernels/org/k/settings", {"visibility": "public"})
    assert hub.ask("GET", "/api/kernels/org/k", token=None).status == 200
    url = f"/download/kernels/org/k/{'0' * 64}?signature=made-up"
    assert hub.ask_storage("GET", url).status == 403


def test_limits(hub: HubBench) -> None:
    hub.create("org/k")
    files = [{"path": f"f{number}", "size": 1, "sample": ""} for number in range(257)]
    assert hub.ask("POST", "/api/kernels/org/k/preupload/main", {"files": files}).status == 413
    paths = {"paths": [str(number) for number in range(1001)]}
    headers = {"Content-Type": "application/json"}
    answer = hub.ask("POST", "/api/kernels/org/k/paths-info/main", paths, headers=headers)
    assert answer.status == 413


def test_what_is_not_known_is_refused_and_remembered(hub: HubBench) -> None:
    assert hub.ask("GET", "/api/spaces/org/k").status == 404
    assert [record.line for record in hub.log.unknown] == ["GET /api/spaces/org/k"]


def again_over(connection: HTTPConnection) -> int:
    connection.request("GET", "/api/kernels/org/k")
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


def test_state_survives_a_restart(tmp_path: Path) -> None:
    with running_hub(tmp_path) as hub:
        hub.create("org/k", "v1")
        hub.commit("org/k", "v1", {"a": "1"})
        head = hub.hub.repository("org/k").resolve("v1").oid
    with HubServer(tmp_path / "hub") as server:
        again = HubBench(server, tmp_path)
        assert again.hub.repository("org/k").resolve("v1").oid == head
        assert again.content("org/k", "v1") == {"a": b"1"}
        assert again.commit("org/k", "v1", {"b": "2"}, parentCommit=head).status == 200
        port = int(server.endpoint.rpartition(":")[2])
        connection = HTTPConnection("127.0.0.1", port)
        assert again_over(connection) == 200
    with pytest.raises((ConnectionError, BadStatusLine)):  # it does not live on in old connections
        again_over(connection)
    connection.close()


def test_connections_are_kept(hub: HubBench) -> None:
    """A refusal reads the rest of the request: the next one on the connection is understood."""
    hub.create("org/k")
    connection = HTTPConnection("127.0.0.1", int(hub.server.endpoint.rpartition(":")[2]))
    statuses: list[int] = []
    wires = set()
    for path in ("/api/kernels/org/none/commit/main", "/api/none", "/api/repos/create"):
        connection.request("POST", path, bytes(200_000))
        answer = connection.getresponse()
        statuses.append(answer.status)
        answer.read()
        wires.add(connection.sock)
    assert statuses == [401, 404, 400]
    assert len(wires - {None}) == 1
    connection.close()


def test_bodies_in_chunks(hub: HubBench) -> None:
    """Of unknown length, and from a client that asks before it sends."""
    hub.create("org/k")
    data = b"abc" * 9
    oid = hashlib.sha256(data).hexdigest()
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": 27}], "ref": {"name": "main"}}
    answer = hub.ask("POST", "/kernels/org/k.git/info/lfs/objects/batch", batch).json()
    href = answer["objects"][0]["actions"]["upload"]["href"]
    host, port = hub.server.storage.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as wire:
        path = href.removeprefix(hub.server.storage)
        lines = (f"PUT {path} HTTP/1.1", "Host: h", "Transfer-Encoding: chunked")
        wire.sendall("\r\n".join((*lines, "Expect: 100-continue", "", "")).encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 100 ")
        wire.sendall(b"5\r\n" + data[:5] + b"\r\n16;x=y\r\n" + data[5:] + b"\r\n0\r\n\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 200 ")
    assert hub.hub.repository("org/k").large(oid).read_bytes() == data


def test_by_hand_and_after_a_kill(tmp_path: Path) -> None:
    """`python -m tests.support.hub`: what was committed is there after `kill -9`."""

    def start() -> tuple[subprocess.Popen[str], str]:  # noqa: TID251
        argv = [sys.executable, "-m", "tests.support.hub", "--root", str(tmp_path), "--org", "org"]
        server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: TID251
        assert server.stdout is not None
        words = dict(word.split("=") for word in server.stdout.readline().split()[1:])
        assert words["HF_TOKEN"] == WRITE
        return server, words["HF_ENDPOINT"]

    create = {"name": "k", "organization": "org", "type": "kernel"}
    heads = []
    for expected in (200, 409):
        server, endpoint = start()
        with server:
            assert exchange(endpoint, "POST", "/api/repos/create", create).status == expected
            answer = exchange(endpoint, "GET", "/api/kernels/org/k")
            heads.append(answer.json()["sha"])
            server.kill()
    assert heads[0] == heads[1]
