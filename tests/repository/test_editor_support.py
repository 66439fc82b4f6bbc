"""Taplo, which is what editors complete and judge TOML with, over `build.toml`.

Its linter comes from PyPI (the `lint` extra). Its language server is in the npm registry only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kbuild.backends import BACKENDS
from kbuild.cli.scaffold import scaffold_files
from kbuild.project.config.schema import SCHEMA_ID
from kbuild.system.rendering import template_root
from tests.support.command_project import run
from tests.support.projects import scaffold_pairs
from tests.support.stores import lasting_folder

pytestmark = pytest.mark.full


ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "reference" / "build.schema.json"
DRIVER = ROOT / "tests" / "support" / "taplo_server.mjs"
SERVER = "@taplo/lsp@0.8.0"
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


@pytest.fixture(scope="module")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for NODE_PATH that has Taplo's language server."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("needs Node.js and npm")
    folder = (lasting_folder() or tmp_path_factory.mktemp("npm")) / "npm" / SERVER.replace("/", "-")
    modules = folder / "node_modules"
    if not (modules / "@taplo" / "lsp" / "dist" / "index.js").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        argv = ("npm", "install", "--silent", "--no-audit", "--prefix", str(folder), SERVER)
        if run(argv, cwd=folder).returncode:
            pytest.skip(f"the npm registry has no {SERVER}")
    return modules


@pytest.mark.network
class TestLanguageServer:
    """What an author sees in an editor, in a project as `init` writes it."""

    @staticmethod
    def ask(modules: Path, path: Path, *positions: tuple[int, int]) -> dict[str, Any]:
        argv = ("node", str(DRIVER), str(path), SCHEMA_ID, str(SCHEMA))
        places = (f"{line}:{character}" for line, character in positions)
        done = run((*argv, *places), cwd=path.parent, env={"NODE_PATH": str(modules)})
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def test_it_completes_backends_and_keys(self, server_folder: Path, tmp_path: Path) -> None:
        path = next(path for path in written(tmp_path) if path.parts[-3:-1] == ("torch", "cxx"))
        text = path.read_text().replace('backend = "cpu"', 'backend = ""')
        path.write_text(text + "\n[kernel.more]\n\n")
        lines = path.read_text().splitlines()
        value = (lines.index('backend = ""'), len('backend = "'))
        section = (lines.index("[kernel.more]") + 1, 0)
        after_general = (lines.index("[general.hub]") - 1, 0)
        answer = self.ask(server_folder, path, value, section, after_general)
        values, keys, general = map(set, answer["completions"])
        compiled = {backend.name for backend in BACKENDS if backend.section}
        assert {f'"{name}"' for name in compiled} <= values
        assert {"backend", "src", "depends", "cuda-capabilities", "language"} <= keys
        assert {"upstream", "kernel-depends"} <= general
        assert "name" not in general  # it is there already

    @pytest.mark.parametrize("framework", ["torch", "tvm-ffi"])
    def test_it_finds_nothing_in_new_projects(
        self, server_folder: Path, tmp_path: Path, framework: str
    ) -> None:
        path = next(path for path in written(tmp_path) if path.parts[-3] == framework)
        assert self.ask(server_folder, path)["diagnostics"] == []

    def test_it_shows_a_wrong_key(self, server_folder: Path, tmp_path: Path) -> None:
        path = written(tmp_path)[0]
        path.write_text(path.read_text().replace("license =", "licence ="))
        messages = [one["message"] for one in self.ask(server_folder, path)["diagnostics"]]
        assert any("'licence' was unexpected" in message for message in messages)
