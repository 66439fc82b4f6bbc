"""Nix without a daemon, a store or settings of the machine: what tests evaluate with."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_project import ROOT, run

NIX = os.environ.get("KBUILD_TEST_NIX") or shutil.which("nix")
needs_nix = pytest.mark.skipif(NIX is None, reason="needs nix: apt install nix-bin")
SETTINGS = """\
experimental-features = nix-command flakes
build-users-group =
substituters =
flake-registry =
warn-dirty = false
"""
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/build.toml"))
READ = ("nix", "kbuild/project/matrix")
"""What the flake reads of kbuild when it is evaluated."""


@dataclass(frozen=True)
class NixBench:
    """A Nix with a store of its own."""

    place: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "NIX_CONF_DIR": str(self.place / "conf"),
            "NIX_USER_CONF_FILES": os.devnull,
            "XDG_CACHE_HOME": str(self.place / "cache"),
            "NIX_REMOTE": "",
        }

    def eval(self, installable: str, *arguments: str, expect: int = 0) -> tuple[Any, str]:
        """The value as JSON (None where evaluation fails as expected), and what nix said."""
        argv = (str(NIX), "eval", "--store", str(self.place / "store"), "--json")
        done = run((*argv, *arguments, installable), cwd=self.place, env=self.environment)
        assert done.returncode == expect, done.stderr
        return json.loads(done.stdout) if expect == 0 else None, done.stderr

    def real(self, path: str) -> Path:
        """Where a store path is on this machine."""
        return Path(f"{self.place}/store{path}")


@contextmanager
def nix_bench() -> Iterator[NixBench]:
    """A Nix that is gone afterwards; files of a store cannot be written, so neither deleted."""
    with tempfile.TemporaryDirectory(prefix="kbuild-nix-") as folder:
        place = Path(folder).resolve()
        (place / "conf").mkdir()
        (place / "conf" / "nix.conf").write_text(SETTINGS)
        try:
            yield NixBench(place)
        finally:
            for base, _, _ in os.walk(place):
                if not Path(base).is_symlink():
                    Path(base).chmod(0o700)


def flake(folder: Path, outputs: str) -> Path:
    """A flake with kbuild's Nix files beside it; its outputs see `lib` and the three functions."""
    for name in READ:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "flake.nix").write_text(f"""\
{{
  outputs = {{ self }}:
    let
      lib = import ./nix/lib.nix;
      variantsOf = import ./nix/variants.nix {{ inherit lib; }};
      environmentsOf = import ./nix/environments.nix {{ inherit lib; }};
      sourcesOf = import ./nix/source.nix {{ inherit lib; }};
    in {{ {outputs} }};
}}
""")
    return folder


def copied(example: str, target: Path) -> Path:
    """An example without what was built in it."""
    ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__", ".pytest_cache")
    return Path(shutil.copytree(ROOT / "examples" / example, target, ignore=ignored))


def unpack(bench: NixBench, sources: dict[Path, dict[str, Any]]) -> None:
    """Lay out projects as derivations see them, each in `unpacked` in its folder."""
    scripts = []
    for place, source in sources.items():
        place.mkdir(parents=True)
        script = source["unpack"].replace(source["tree"], str(bench.real(source["tree"])))
        scripts.append(f"cd {shlex.quote(str(place))}\n{script}")
    (bench.place / "unpack.sh").write_text("\n".join(scripts))
    done = run(("bash", "-eu", "unpack.sh"), cwd=bench.place)
    assert done.returncode == 0, done.stderr
