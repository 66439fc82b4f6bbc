"""Nothing but the Nix driver needs Nix, and the Nix files need nothing but Nix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.matrix.selection import Selection, select, variants
from kbuild.project import open_project

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "nix").glob("*.nix"))
PURE = ("lib", "matrix", "selection", "variants", "environments", "tree", "source")
RELU = ROOT / "examples" / "relu"
NIX = """\
#!/bin/sh
: > "$NIX_WAS_CALLED"
exit 1
"""


def listed(place: Path, *arguments: str, path: str) -> list[str]:
    """`kbuild list-variants` of relu with this PATH."""
    argv = (sys.executable, "-m", "kbuild", "list-variants", *arguments, str(RELU))
    called = place / "called"
    surroundings = {**os.environ, "PATH": path, "NIX_WAS_CALLED": str(called)}
    done = subprocess.run(  # noqa: TID251 - a whole process, as a shell starts it
        argv, env=surroundings, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not called.exists()
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def with_nix(tmp_path: Path) -> str:
    """A PATH on which every Nix command is noticed."""
    for name in ("nix", "nix-build", "nix-instantiate", "nix-store", "nix-env"):
        (tmp_path / name).write_text(NIX)
        (tmp_path / name).chmod(0o755)
    return str(tmp_path)


def test_variants_are_listed_where_there_is_no_nix(tmp_path: Path) -> None:
    project = open_project(RELU)
    found = listed(tmp_path, path=str(tmp_path))
    assert found == [str(choice.variant) for choice in select(project, Selection())]


def test_variants_are_listed_without_asking_nix(tmp_path: Path, with_nix: str) -> None:
    found = listed(tmp_path, "--all", path=f"{with_nix}{os.pathsep}{os.environ['PATH']}")
    assert found == [str(choice.variant) for choice in variants(open_project(RELU))]
    assert listed(tmp_path, "--reasons", path=with_nix)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nix_files_name_files_that_are_there(file: Path) -> None:
    text = re.sub(r"#.*", "", file.read_text())
    for path in re.findall(r"(?<![\w/.])\.\.?/[\w./-]+", text):
        assert (file.parent / path).exists(), path


@pytest.mark.parametrize("name", PURE)
def test_variants_and_sources_need_no_package_set(name: str) -> None:
    """So that their evaluation costs nothing, and fetches nothing."""
    text = re.sub(r"#.*", "", (ROOT / "nix" / f"{name}.nix").read_text())
    words = ("nixpkgs", "pkgs", "derivation", "fetch", "getEnv", "currentSystem", "currentTime")
    assert not [word for word in words if word in text]


def test_the_matrix_is_written_once() -> None:
    """Releases of Torch and toolkits are in the data file that kbuild reads, and nowhere in Nix."""
    assert "../kbuild/matrix/versions.toml" in (ROOT / "nix/matrix.nix").read_text()
    for name in PURE:
        text = re.sub(r"#.*", "", (ROOT / "nix" / f"{name}.nix").read_text())
        assert not re.findall(r'"\d+\.\d[\d.]*"', text), name
