"""What a user's pip is set up for reaches the builders of `kbuild build --driver nix`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.command_project import ROOT, CommandProject, run
from tests.support.nix.sandbox import NIX, SYSTEM, Sandbox, why_not
from tests.support.projects import BINDING, kernel, write_project

pytestmark = [pytest.mark.nix, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
VARIANT = f"torch213-cxx11-cpu-{SYSTEM}"
PASSWORD = "kbuild-s3cret"  # noqa: S105
NEEDED = ("nix/fetch-wheel.nix", "nix/fetching.nix", "kbuild/toolchains/wheels/settings.py")
METADATA = {
    "name": "my-kernel", "id": "_my_kernel_cpu_1", "version": 2, "license": "MIT",
    "python-depends": [], "backend": {"type": "cpu"},
    "provenance": {"kernel-builder": {"name": "kbuild", "version": "0"}},
}  # fmt: skip
FLAKE = """\
{ # kbuild's own fetching, of one wheel
  outputs = { self }:
    let
      pkgs = import ./nixpkgs { system = "SYSTEM"; };
      fetch = import ./nix/fetch-wheel.nix { inherit pkgs; python = pkgs.python3; };
      wheel = fetch { filename = "FILE"; sha256 = "DIGEST"; };
    in {
      packages.SYSTEM.redistributable."VARIANT" = derivation {
        name = "my-kernel-VARIANT";
        system = "SYSTEM";
        builder = "/bin/bash";
        args = [ "-c" ''
          export PATH=/usr/bin:/bin
          mkdir $out
          echo "$metadata" > $out/metadata.json
          sha256sum < ${wheel} > $out/__init__.py
          exit 0
        '' ];
        metadata = builtins.readFile ./metadata.json;
      };
    };
}
"""
HOSTILE = """\
constraint = /nowhere/constraints.txt
target = /nowhere
prefix = /nowhere
user = true
require-virtualenv = true
quiet = 3
log = /nowhere/pip.log
no-binary = :all:
"""
"""What a configuration may say beside where wheels are."""


@dataclass
class Server:
    """An index with one wheel that asks for a name and a password."""

    wheel: Path
    port: int = 0

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        given = handler.headers.get("Authorization", "").removeprefix("Basic ")
        if base64.b64decode(given).decode() != f"me:{PASSWORD}":
            handler.send_response(401)
            handler.send_header("WWW-Authenticate", 'Basic realm="index"')
            handler.end_headers()
            return
        path = unquote(urlsplit(handler.path).path)
        page = f'<a href="/files/{self.wheel.name}">{self.wheel.name}</a>'.encode()
        body = self.wheel.read_bytes() if path.startswith("/files/") else page
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def served(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A Nix that lends programs, and nothing of this machine's settings of pip."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        made = Sandbox(tmp_path_factory.mktemp("nix"))
        made.configure(made.conf)
    return made


@dataclass(frozen=True)
class User:
    """Somebody with a home and a kernel whose flake fetches a wheel that no store has."""

    kernel: CommandProject
    home: Path
    wheel: Path
    environment: dict[str, str]

    def configure(self, text: str) -> None:
        file = self.home / ".config" / "pip" / "pip.conf"
        file.parent.mkdir(parents=True)
        file.write_text(f"[global]\n{text}{HOSTILE}")

    def build(self) -> subprocess.CompletedProcess[str]:
        options = ("--driver", "nix", "--variant", VARIANT)
        done = self.kernel.kbuild("build", *options, env=self.environment)
        read = (self.kernel.root / "build" / VARIANT / "__init__.py").read_text()
        assert read.split()[0] == hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        return done


@pytest.fixture
def user(sandbox: Sandbox, tmp_path: Path) -> User:
    wheel = tiny_wheel(tmp_path)
    root = write_project(tmp_path / "kernel", BINDING, kernel("cpu"))
    for name in NEEDED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(sandbox.conf / "nixpkgs", root / "nixpkgs")
    (root / "metadata.json").write_text(json.dumps(METADATA))
    flake = FLAKE.replace("FILE", wheel.name).replace("SYSTEM", SYSTEM).replace("VARIANT", VARIANT)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (root / "flake.nix").write_text(flake.replace("DIGEST", digest))
    made = CommandProject(root, tmp_path / "cache")
    made.git("init", "-q")
    made.git("add", "-A")
    home = tmp_path / "home"
    home.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nix").symlink_to(str(NIX))
    hidden = dict.fromkeys((name for name in os.environ if name.startswith("PIP_")), "")
    environment = {
        **hidden, **sandbox.environment(), "PIP_CONFIG_FILE": "", "HOME": str(home),
        "XDG_CONFIG_HOME": "", "KBUILD_TOOLCHAIN": "",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    return User(made, home, wheel, environment)


def tiny_wheel(folder: Path) -> Path:
    """One that nobody has fetched before."""
    path = folder / "odd_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("odd_wheel.py", f"# {folder} {time.time_ns()}\n")
        about = "Metadata-Version: 2.1\nName: odd-wheel\nVersion: 1.0\n"
        archive.writestr("odd_wheel-1.0.dist-info/METADATA", about)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("odd_wheel-1.0.dist-info/WHEEL", tags)
        archive.writestr("odd_wheel-1.0.dist-info/RECORD", "")
    return path


def test_credentials_are_in_the_address_and_nowhere_else(user) -> None:
    began = time.time()
    with served(Server(user.wheel)) as server:
        user.configure(f"index-url = http://me:{PASSWORD}@127.0.0.1:{server.port}/simple\n")
        done = user.build()
    assert PASSWORD not in done.stdout + done.stderr
    assert traces(began, user.kernel.root, user.kernel.cache) == []


def traces(began: float, *folders: Path) -> list[Path]:
    """Files that hold the password, among those that are new in the store and in some folders."""
    new = [path for path in Path("/nix/store").iterdir() if path.lstat().st_ctime >= began - 1]
    places = [*map(str, (*new, *folders)), "/nix/var/log", "/nix/var/nix/db"]
    there = [place for place in places if Path(place).exists()]
    done = run(("grep", "-rlaF", PASSWORD, *there), cwd=Path("/"))
    return [Path(line) for line in done.stdout.splitlines()]
