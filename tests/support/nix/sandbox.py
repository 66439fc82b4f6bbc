"""A kernel's flake built by this machine's Nix, with the stand-in for nixpkgs."""

from __future__ import annotations

import grp
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.command_project import ROOT, run

NIX = os.environ.get("KBUILD_TEST_NIX") or shutil.which("nix")
SYSTEM = "x86_64-linux"
TREE = ("flake.nix", "flake.lock", "pyproject.toml", "nix", "kbuild", "templates", "examples")
"""What of this repository its flake reads."""
_IGNORED = shutil.ignore_patterns("__pycache__", "build", ".kbuild", ".pytest_cache")
_BYTECODE = shutil.ignore_patterns("__pycache__")
_PROBE = """\
derivation {
  name = "sandbox-probe";
  system = builtins.currentSystem;
  builder = "/bin/bash";
  args = [ "-c" "echo > $out; exit 0" ];
}
"""


@cache
def why_not() -> str | None:
    """Why no sandboxed build is possible here, None when it is."""
    if NIX is None:
        return "needs nix: apt install nix-bin"
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        return f"wheels of compilers are for {SYSTEM}"
    if os.geteuid() != 0:
        return "needs root: the host's programs are lent to the sandbox by nix.conf"
    if not any(group.gr_mem for group in grp.getgrall() if group.gr_name == "nixbld"):
        return "needs the group nixbld with users: builders must not be root (see .ci/run)"
    namespaces = ("unshare", "--map-root-user", "--mount", "--pid", "--fork", "true")
    done = run(namespaces, cwd=ROOT)
    return None if done.returncode == 0 else f"no user namespaces: {done.stderr.strip()}"


@dataclass(frozen=True)
class Sandbox:
    """Nix with settings of its own, and a copy of kbuild's flake."""

    folder: Path

    @property
    def conf(self) -> Path:
        return self.folder / "conf"

    @property
    def flake(self) -> Path:
        return self.folder / "flake"

    def prepare(self) -> None:
        """Write the settings and the stand-in, and copy the flake."""
        self.configure(self.conf)
        for name in TREE:
            source, target = ROOT / name, self.flake / name
            if source.is_dir():
                ignored = _IGNORED if name == "examples" else _BYTECODE
                shutil.copytree(source, target, ignore=ignored)
            elif source.is_file():
                self.flake.mkdir(exist_ok=True)
                shutil.copy(source, target)

    def configure(self, conf: Path, *options: str) -> None:
        """Write settings as tests/support/nix/stand_in.py makes them."""
        conf.mkdir(exist_ok=True)
        script = str(ROOT / "tests" / "support" / "nix" / "stand_in.py")
        made = run((sys.executable, script, str(conf), *options), cwd=ROOT)
        assert made.returncode == 0, made.stderr

    def environment(self, conf: Path | None = None) -> dict[str, str]:
        fetching = json.loads(((conf or self.conf) / "environment.json").read_text())
        return {
            **fetching,
            "NIX_CONF_DIR": str(conf or self.conf),
            "NIX_USER_CONF_FILES": os.devnull,
            "NIX_REMOTE": "",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def project(self, example: str, place: Path) -> Path:
        """A copy of an example, outside git."""
        return Path(shutil.copytree(ROOT / "examples" / example, place, ignore=_IGNORED))

    def lock(self, project: Path) -> None:
        """Pin this copy of kbuild and the stand-in in a project's own flake."""
        file = project / "flake.nix"
        pins = f"""\
  inputs.kbuild.url = "path:{self.flake}";
  inputs.kbuild.inputs.nixpkgs.url = "path:{self.conf}/nixpkgs";
"""
        lines = file.read_text().splitlines(keepends=True)
        at = next(number for number, line in enumerate(lines) if "inputs.kbuild.url" in line)
        file.write_text("".join((*lines[:at], pins, *lines[at + 1 :])))
        argv = (str(NIX), "flake", "lock", f"path:{project}")
        done = run(argv, cwd=self.folder, env=self.environment())
        assert done.returncode == 0, done.stderr

    def overrides(self, project: Path) -> tuple[str, ...]:
        if (project / "flake.lock").is_file() and project != self.flake:
            return ()
        packages = f"path:{self.conf}/nixpkgs"
        if project == self.flake:
            return ("--override-input", "nixpkgs", packages)
        kbuild = ("--override-input", "kbuild", f"path:{self.flake}")
        return (*kbuild, "--override-input", "kbuild/nixpkgs", packages)

    def nix(
        self,
        project: Path | str,
        verb: Sequence[str],
        attribute: str = "",
        *rest: str,
        conf: Path | None = None,
        expect: int | None = 0,
    ) -> subprocess.CompletedProcess[str]:
        """`nix VERB ... PROJECT#ATTRIBUTE REST`."""
        url = project if isinstance(project, str) else f"path:{project}"
        place = self.flake if project == self.flake else self.folder
        folder = Path(project.partition("://")[2]) if isinstance(project, str) else project
        argv = (str(NIX), *verb, "--no-write-lock-file", *self.overrides(folder))
        target = f"{url}#{attribute}" if attribute else url
        done = run((*argv, target, *rest), cwd=place, env=self.environment(conf))
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        return done

    def eval(self, project: Path | str, attribute: str, *rest: str) -> Any:
        """A value as JSON."""
        return json.loads(self.nix(project, ("eval", "--json"), attribute, *rest).stdout)

    def build(
        self, project: Path | str, attribute: str, *options: str, conf: Path | None = None
    ) -> tuple[Path, str]:
        """The output's path, and what the builders said."""
        verb = ("build", "--no-link", "--json", "--print-build-logs", *options)
        done = self.nix(project, verb, attribute, conf=conf)
        return Path(json.loads(done.stdout)[0]["outputs"]["out"]), done.stderr

    def references(self, output: Path) -> list[str]:
        """Other store paths that an output names."""
        asked = ("nix-store", "--query", "--references", str(output))
        done = run(asked, cwd=self.folder, env=self.environment())
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.split() if line != str(output)]
