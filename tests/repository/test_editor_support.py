"""Taplo, which is what editors complete and judge TOML with, over `build.toml`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from kbuild.cli.scaffold import scaffold_files
from kbuild.system.rendering import template_root
from tests.support.command_project import run
from tests.support.projects import scaffold_pairs

pytestmark = pytest.mark.full


ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "reference" / "build.schema.json"
TAPLO = shutil.which("taplo", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def written(folder: Path) -> list[Path]:
    """The `build.toml` of each pair of language and framework."""
    paths = []
    for scaffold in scaffold_pairs():
        files = scaffold_files(scaffold, template_root() / "init")
        path = folder / scaffold.framework / (scaffold.language or "cxx") / "build.toml"
        path.parent.mkdir(parents=True)
        path.write_bytes(files["build.toml"])
        paths.append(path)
    return paths


@pytest.mark.skipif(TAPLO is None, reason="needs taplo: pip install '.[lint]'")
@pytest.mark.quick
class TestLint:
    @staticmethod
    def lint(*paths: Path) -> str:
        argv = (str(TAPLO), "lint", "--colors", "never", "--schema", SCHEMA.as_uri())
        done = run((*argv, *map(str, paths)), cwd=ROOT)
        lines = (done.stdout + done.stderr).splitlines()
        text = "\n".join(line for line in lines if not line.lstrip().startswith("INFO"))
        assert bool(text) is bool(done.returncode), text
        return text

    def test_every_example_is_valid(self) -> None:
        examples = sorted(ROOT.glob("examples/*/build.toml"))
        assert examples
        assert self.lint(*examples) == ""

    def test_every_new_project_is_valid(self, tmp_path: Path) -> None:
        assert self.lint(*written(tmp_path)) == ""

    def test_a_wrong_key_is_an_error(self, tmp_path: Path) -> None:
        text = (ROOT / "examples" / "relu" / "build.toml").read_text()
        path = tmp_path / "build.toml"
        path.write_text(text.replace("license =", "licence ="))
        assert "'licence' was unexpected" in self.lint(path)
