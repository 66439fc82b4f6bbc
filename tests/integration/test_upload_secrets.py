"""A token never leaves the process but in the header that it belongs to."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.hub.fixture import HubBench
from tests.support.hub.uploads import write_build

pytest.importorskip("huggingface_hub")
# Of the shape that tokens have, and of none.
CANARIES = ("hf_CanaryCanaryCanaryCanary12345", "odd-canary-of-no-known-shape")
UPLOAD = (sys.executable, "-m", "kbuild", "upload", "--repo-id", "org/kernel")
ALLOW = ("--allow-noncompliant", "--output-json", "out.json", "-v")


class Echo(BaseHTTPRequestHandler):
    """A server that answers everything wrongly, and repeats what it was told in confidence."""

    status = 500
    body = "{}"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        told = self.headers.get("Authorization", "none")
        data = self.body.replace("@", told).encode()
        self.send_response(self.status)
        self.send_header("X-Error-Message", f"you said {told}")
        self.send_header("X-Request-Id", told)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PUT = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def echo(status: int, body: str) -> Iterator[str]:
    handler = type("Bound", (Echo,), {"status": status, "body": body})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def leaks(done: subprocess.CompletedProcess[str], *folders: Path) -> list[str]:
    """Where a canary is seen: in what was said, and in every file that was written."""
    said = [
        name for name in ("stdout", "stderr") if any(c in getattr(done, name) for c in CANARIES)
    ]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return said + [
        str(path) for path in files if any(c.encode() in path.read_bytes() for c in CANARIES)
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_build(tmp_path / "project", random.Random(1), ("torch-cpu",))  # noqa: S311


@pytest.mark.parametrize(
    ("canary", "status", "body"),
    [
        (CANARIES[0], 401, '{"error": "bad token @"}'),
        (CANARIES[1], 401, '{"error": "bad token @"}'),
        (CANARIES[0], 400, '{"error": "@ is odd"}'),
        (CANARIES[1], 200, '{"name": "@"}'),
        (CANARIES[1], 200, "[1, 2, @"),
        (CANARIES[0], 418, "@"),
    ],
)
def test_a_server_that_repeats_the_token(
    hub: HubBench, project: Path, tmp_path: Path, canary: str, status: int, body: str
) -> None:
    with echo(status, body) as endpoint:
        env = {
            "HF_ENDPOINT": endpoint,
            "KBUILD_CACHE_DIR": str(tmp_path / "cache"),
            "KBUILD_TRACEBACK": "1",
        }
        for more in ((), ("--json",)):
            done = hub.run(*UPLOAD, *ALLOW, *more, token=canary, cwd=project, env=env)
            assert done.returncode not in {0, 1}, done.stderr
            assert done.stderr
            assert leaks(done, project, tmp_path / "cache") == []


def test_the_crash_report_is_there_and_clean(hub: HubBench, project: Path, tmp_path: Path) -> None:
    env = {"KBUILD_CACHE_DIR": str(tmp_path / "cache")}
    code = (
        "import sys; from kbuild.publish.hub import huggingface\n"
        "huggingface.HubClient.whoami = lambda self: self.no_such_name\n"
        "from kbuild.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    command = (sys.executable, "-c", code, *UPLOAD[3:], *ALLOW)
    done = hub.run(*command, token=CANARIES[0], cwd=project, env=env)
    assert done.returncode == 70, done.stderr
    report = next((tmp_path / "cache" / "crashes").iterdir()).read_text()
    assert "Traceback" in report
    assert CANARIES[0] not in report


@pytest.mark.parametrize("kind", ["403", "cut"])
def test_faults_of_a_real_upload(hub: HubBench, project: Path, tmp_path: Path, kind: str) -> None:
    """With the token where `hf auth login` keeps it."""
    (hub.home / "token").write_text("hf_write")
    env = {"KBUILD_CACHE_DIR": str(tmp_path / "cache")}
    hub.faults.add(kind, "POST .*/commit/", times=None)  # type: ignore[arg-type]
    code = (
        "import sys, time; time.sleep = lambda seconds: None\n"
        "from kbuild.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    command = (sys.executable, "-c", code, *UPLOAD[3:], *ALLOW, "--json")
    done = hub.run(*command, token=None, cwd=project, env=env)
    assert done.returncode == 11, done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "hub"
    assert "hf_write" not in done.stdout + done.stderr
    assert "signature=" not in done.stdout + done.stderr
