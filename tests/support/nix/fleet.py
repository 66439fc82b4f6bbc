"""Several machines played by one: stores in folders, a cache served over HTTP, a private sshd."""

from __future__ import annotations

import functools
import grp
import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.command_project import run

NIX = os.environ.get("KBUILD_TEST_NIX") or shutil.which("nix")
SYSTEM = f"{platform.machine()}-linux"
NAMESPACES = ("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")
LENT = ("/bin", "/usr", "/lib", "/lib64")
"""Folders of this machine that builders see: they are bash and coreutils."""
WORK = """\
let
  taking = seconds: name: derivation {
    name = "kbuild-fleet-${name}";
    system = builtins.currentSystem;
    builder = "/bin/bash";
    args = [ "-c" ''
      export PATH=/usr/bin
      date +%s%N > $out
      sleep ${seconds}
      date +%s%N >> $out
      exit 0
    '' ];
  };
in { one = taking "4" "one"; two = taking "4" "two"; quick = taking "0" "quick"; }
"""
"""Derivations that write when they were built, in nanoseconds; two of them take their time."""


def settings(conf: Path) -> None:
    """Settings that ask nothing of the network, and lend the host's programs to the sandbox."""
    has_users = any(group.gr_mem for group in grp.getgrall() if group.gr_name == "nixbld")
    group = "nixbld" if has_users else ""
    lent = " ".join(folder for folder in LENT if Path(folder).exists())
    conf.mkdir()
    (conf / "nix.conf").write_text(
        "experimental-features = nix-command flakes\n"
        f"build-users-group = {group}\n"
        "sandbox = true\n"
        "sandbox-fallback = false\n"
        f"sandbox-paths = {lent}\n"
        "substituters =\n"
        "flake-registry =\n"
        "warn-dirty = false\n"
    )


@dataclass(frozen=True)
class Fleet:
    """A folder with stores in it, and a Nix whose own store is there as well."""

    folder: Path
    conf: Path
    ssh: str = ""
    """Options of the ssh that Nix runs."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "NIX_CONF_DIR": str(self.conf),
            "NIX_USER_CONF_FILES": os.devnull,
            "NIX_REMOTE": "",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "NIX_SSHOPTS": self.ssh,
        }

    def nix(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A Nix command, however it ends."""
        return run((str(NIX), *arguments), cwd=self.folder, env=self.environment)

    def build(
        self, *names: str, store: str = "own", expect: int = 0, options: tuple[str, ...] = ()
    ) -> tuple[list[str], str]:
        """Store paths of attributes of `work.nix` in the order of the names, and what nix said."""
        file = self.folder / "work.nix"
        file.write_text(WORK)
        place = ("--store", str(self.folder / store))
        asked = ("build", "--impure", "--file", str(file), *names, "--no-link", "--json")
        done = self.nix(*asked, *place, *options)
        assert done.returncode == expect, done.stderr
        if expect:
            return [], done.stderr
        outs = [entry["outputs"]["out"] for entry in json.loads(done.stdout)]
        return sorted(outs, key=lambda out: names.index(out.rpartition("-")[2])), done.stderr

    def keys(self, name: str) -> tuple[Path, str]:
        """A new pair: the secret key's file, and the public key."""
        secret, public = self.folder / f"{name}.sec", self.folder / f"{name}.pub"
        made = run(
            ("nix-store", "--generate-binary-cache-key", f"{name}-1", str(secret), str(public)),
            cwd=self.folder,
            env=self.environment,
        )
        assert made.returncode == 0, made.stderr
        return secret, public.read_text().strip()

    def holds(self, store: str, path: str) -> bool:
        """Whether a store of the fleet has a path, as far as its own database says."""
        asked = self.nix("path-info", "--store", str(self.folder / store), path)
        return asked.returncode == 0

    def real(self, store: str, path: str) -> Path:
        """Where a path of one of the stores lies."""
        return Path(f"{self.folder / store}{path}")


def what_is_missing() -> str | None:
    """Why no sandboxed build works here; None when it does."""
    if NIX is None:
        return "needs nix: apt install nix-bin"
    with fleet() as made:
        done = made.nix(
            *("build", "--impure", "--no-link", "--store", str(made.folder / "own"), "--expr"),
            'derivation { name = "try"; system = builtins.currentSystem; builder = "/bin/bash";'
            ' args = [ "-c" "echo > $out; exit 0" ]; }',
        )
    if done.returncode == 0:
        return None
    probe = run(NAMESPACES, cwd=Path("/"))
    assert probe.returncode, f"namespaces work here, and Nix's sandbox does not: {done.stderr}"
    return f"Nix's sandbox needs namespaces: {' '.join(NAMESPACES)}: {probe.stderr.strip()}"


@contextmanager
def fleet() -> Iterator[Fleet]:
    """Stores that are gone afterwards; files of a store cannot be written, so neither deleted."""
    folder = Path(tempfile.mkdtemp(prefix="kbuild-fleet-", dir=_base())).resolve()
    folder.chmod(0o755)  # build users pass through
    settings(folder / "conf")
    try:
        yield Fleet(folder, folder / "conf")
    finally:
        for argv in (("chmod", "-R", "u+w"), ("rm", "-rf")):  # tens of thousands of files
            run((*argv, str(folder)), cwd=folder.parent)


def _base() -> Path:
    """A folder that only its owner writes to: newer releases of Nix want no store in `/tmp`."""
    shared, own = Path("/var/cache"), Path.home() / ".cache"
    if os.access(shared, os.W_OK):
        return shared
    own.mkdir(exist_ok=True)
    return own


def span(path: Path) -> tuple[int, int]:
    """When a derivation of `WORK` was built: from, until."""
    began, ended = map(int, path.read_text().split())
    return began, ended


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder can be read over HTTP."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def sshd_program() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextmanager
def ssh_machine(fleet: Fleet) -> Iterator[str]:
    """`NIX_SSHOPTS` by which the host `machine` is reached: this one, with a key of its own."""
    folder = fleet.folder / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        key = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        assert run(key, cwd=folder).returncode == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd drops its rights
    path = os.pathsep.join((str(Path(str(NIX)).parent), os.environ.get("PATH", "")))
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPidFile none\n"
        f"PasswordAuthentication no\nSetEnv NIX_CONF_DIR={fleet.conf} PATH={path}\n"
    )
    (folder / "config").write_text(
        f"Host machine\nHostName 127.0.0.1\nPort {port}\nIdentityFile {folder}/user\n"
        f"IdentitiesOnly yes\nBatchMode yes\nStrictHostKeyChecking accept-new\n"
        f"UserKnownHostsFile {folder}/known\n"
    )
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(  # noqa: TID251
            (str(sshd_program()), "-D", "-e", "-f", str(folder / "sshd_config")), stderr=log
        )
        try:
            _answers(port, folder / "log")
            yield f"-F {folder}/config"
        finally:
            server.terminate()
            server.wait()


def _answers(port: int, log: Path) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text())
