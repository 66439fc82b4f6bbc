"""The recipes of `docs/contributing/add-a-command.md`, applied to a copy of kbuild."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from kbuild.system.processes import LocalRunner, ProcessResult

ROOT = Path(__file__).parents[2]
PAGE = "docs/contributing/add-a-command.md"
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PROJECT = ROOT / "examples" / "relu-noarch"


class Copy:
    """kbuild with the changes of the page."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(
            ROOT / "kbuild", root / "kbuild", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copytree(ROOT / "docs" / "explanation", root / "docs" / "explanation")
        for kind, name, text in BLOCK.findall((ROOT / PAGE).read_text("utf-8")):
            (self.change if kind == "diff" else self.write)(root / name, text)

    def write(self, path: Path, text: str) -> None:
        assert not path.exists()
        path.write_text(text, "utf-8")

    def change(self, path: Path, diff: str) -> None:
        lines, text = diff.splitlines(keepends=True), path.read_text("utf-8")
        before, after = ("".join(x[1:] for x in lines if x[0] != sign) for sign in "+-")
        assert text.count(before) == 1, f"{path}: {before}"
        path.write_text(text.replace(before, after), "utf-8")

    def python(self, *arguments: str) -> ProcessResult:
        path = os.pathsep.join((str(self.root), *filter(None, sys.path)))
        env = os.environ | {"PYTHONPATH": path, "KBUILD_CACHE": str(self.root / "cache")}
        return LocalRunner().run([sys.executable, *arguments], env=env, cwd=self.root)

    def kbuild(self, *arguments: str) -> ProcessResult:
        return self.python("-m", "kbuild", *arguments)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("changed"))


def test_the_command_is_listed_and_documented(changed):
    assert "count-variants    Count the project's variants" in changed.kbuild("--help").output
    assert "## count-variants" in changed.kbuild("generate-docs").output
    assert "--variant GLOB" in changed.kbuild("count-variants", "--help").output


def test_the_command_runs(changed):
    done = changed.kbuild("count-variants", str(PROJECT), "--json")
    assert json.loads(done.output) == {"cpu": 1, "cuda": 1}
    refused = changed.kbuild("count-variants", str(PROJECT), "--backend", "xpu")
    assert (refused.returncode, "does not list the backend" in refused.output) == (2, True)


def test_the_option_is_parsed_and_validated(changed):
    assert "--max-variants N" in changed.kbuild("build", "--help").output
    assert "--max-variants N" in changed.kbuild("generate-docs").output
    refused = changed.kbuild("build", str(PROJECT), "--max-variants", "0")
    assert (refused.returncode, "--max-variants takes a number" in refused.output) == (2, True)


def test_the_option_is_used(changed):
    refused = changed.kbuild("build", str(PROJECT), "--max-variants", "1")
    assert (refused.returncode, "2 variants are selected" in refused.output) == (2, True)


def test_builds_by_nix_refuse_the_option(changed):
    refused = changed.kbuild("build", str(PROJECT), "--max-variants", "1", "--driver", "nix")
    assert "--max-variants does not work with --driver nix" in refused.output
