"""A running Hub for tests, and processes that believe it is the real one.

`huggingface_hub` reads its environment when it is imported, so code that talks to this Hub runs in
a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.support.hub.faults import Faults
from tests.support.hub.log import RequestLog
from tests.support.hub.server import HubServer, running_server
from tests.support.hub.state import HEADS, Account, Entry, Hub, Repository

ROOT = Path(__file__).resolve().parents[3]
USER, ORGANISATION = "tester", "org"
WRITE, READ, STRANGER = "hf_write", "hf_read", "hf_stranger"
TOKENS = {
    WRITE: Account(USER, "write", (ORGANISATION,)),
    READ: Account(USER, "read", (ORGANISATION,)),
    STRANGER: Account("stranger", "write"),
}
_DROPPED = ("HF_", "HUGGING", "KERNELS_")  # settings that lead elsewhere
Done = subprocess.CompletedProcess[str]


@dataclass
class HubBench:
    """A Hub, and an environment that leads to it."""

    server: HubServer
    home: Path
    """`HF_HOME`: caches and tokens of the processes; nothing in it at first."""

    @property
    def hub(self) -> Hub:
        return self.server.hub

    @property
    def faults(self) -> Faults:
        return self.server.faults

    @property
    def log(self) -> RequestLog:
        return self.server.log

    def environ(self, token: str | None = WRITE, **more: str) -> dict[str, str]:
        """The environment of a process that is logged in with a token, or not at all."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        own = {
            "HF_ENDPOINT": self.server.endpoint,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",  # hf_xet does not fall back to LFS by itself
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "NO_PROXY": "127.0.0.1,localhost",
        }
        named = {"HF_TOKEN": token} if token else {}
        return {**kept, **own, **named, **more}

    def run(
        self,
        *argv: str,
        token: str | None = WRITE,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> Done:
        """A process in that environment."""
        return subprocess.run(  # noqa: TID251
            argv,
            cwd=cwd or self.home,
            env=self.environ(token, **(env or {})),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def python(
        self,
        code: str,
        *arguments: str,
        token: str | None = WRITE,
        env: Mapping[str, str] | None = None,
    ) -> Any:
        """Run code in a fresh interpreter and return the JSON that it prints last.

        An error of the code comes back as `{"error": its class, "status": of HTTP, "text": ...}`.
        """
        done = self.run(sys.executable, "-c", _PROGRAM, code, *arguments, token=token, env=env)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else None

    def commit(self, name: str, revision: str, files: Mapping[str, str]) -> int:
        """A bare commit of small text files; the status that it is answered with."""
        rows: list[Any] = [{"key": "header", "value": {"summary": "test"}}]
        rows += [{"key": "file", "value": {"path": p, "content": c}} for p, c in files.items()]
        payload = "\n".join(json.dumps(row) for row in rows).encode()
        url = f"{self.server.endpoint}/api/kernels/{name}/commit/{revision}"
        request = Request(url, payload, {"Authorization": f"Bearer {WRITE}"}, method="POST")  # noqa: S310
        try:
            with urlopen(request) as answer:  # noqa: S310
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def create(self, name: str, *branches: str, private: bool = False) -> Repository:
        """A kernel repository, without asking over HTTP."""
        made = self.hub.create(name, private=private)
        for branch in branches:
            made.move(f"refs/heads/{branch}", made.resolve("main").oid)
        return made

    def publish(
        self, name: str, files: Mapping[str, bytes], *, private: bool = False
    ) -> Repository:
        """A kernel repository with these files on the branch `v1`, whatever their names."""
        made = self.create(name, private=private)
        added = {path: Entry(data) for path, data in files.items()}
        made.commit(f"{HEADS}v1", {**made.resolve("main").files, **added}, "test")
        return made

    def content(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """All that a revision publishes: paths and bytes, without what the Hub itself keeps."""
        files = self.hub.repository(name).resolve(revision).files
        return {path: entry.data for path, entry in files.items() if path != ".gitattributes"}


# Runs argv[1] with `answer(value)` and the rest of argv; tells errors as JSON.
_PROGRAM = """
import json, sys
def answer(value):
    print(json.dumps(value))
code = sys.argv[1]
sys.argv = ["code", *sys.argv[2:]]
try:
    names = {"answer": answer, "arguments": sys.argv[1:], "__name__": "code"}
    exec(compile(code, "code", "exec"), names)
except Exception as error:
    status = getattr(getattr(error, "response", None), "status_code", None)
    answer({"error": type(error).__name__, "status": status, "text": str(error)})
"""


@contextmanager
def running_hub(folder: Path) -> Iterator[HubBench]:
    """A Hub, with the home of its clients below a folder; its complaints are raised at the end."""
    home = folder / "hf-home"
    home.mkdir(parents=True, exist_ok=True)
    with running_server(TOKENS, frozenset([ORGANISATION])) as server:
        yield HubBench(server, home)
        for complaint in server.hub.complaints:
            raise complaint
