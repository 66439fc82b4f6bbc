"""An unchanged project is not judged twice, and a changed one is never taken for unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.cli.build_toml import cached_result, store_result
from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError
from kbuild.system.sourcetree import SourceTree

TEXT = """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["a.cpp"]
maxver = "2.13"
"""
FILES = {"torch-ext/relu/__init__.py": "__all__ = []\n", "a.cpp": ""}


@pytest.fixture
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def judge(root, cache):
    tree = SourceTree(root)
    try:
        problems = open_project(root, tree).warnings
    except ConfigError as error:
        problems = error.problems
    return store_result(root, cache, problems, tree.observed)


def test_a_verdict_comes_back(project, cache):
    root = project(TEXT, FILES)
    given = judge(root, cache)
    found = cached_result(root, cache)
    assert found is not None
    assert found.problems == given.problems
    assert found.ok
    assert found.problems[0]["key"] == "torch.maxver"


def test_files_are_named_from_where_the_command_runs(project, cache, monkeypatch):
    root = project(TEXT, FILES)
    judge(root, cache)
    monkeypatch.chdir(root / "torch-ext")
    found = cached_result(root, cache)
    assert found is not None
    assert found.problems[0]["file"] == str(root / "build.toml")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "build.toml").write_text(TEXT + "\n"),
        lambda root: (root / "a.cpp").unlink(),
        lambda root: (root / "a.cpp").write_text("#include <torch/extension.h>"),
        lambda root: (root / "torch-ext/relu/__init__.py").write_text(""),
        lambda root: (root / "torch-ext/relu/ops.py").write_text("import relu"),
        lambda root: (root / "torch-ext/relu/relu").mkdir(),
        lambda root: (root / "build.toml").unlink(),
        lambda root: os.utime(root / "build.toml", ns=(1, 1)),
    ],
)
def test_a_change_asks_for_a_new_verdict(project, cache, change):
    root = project(TEXT, FILES)
    judge(root, cache)
    change(root)
    assert cached_result(root, cache) is None


def test_a_plug_in_that_is_installed_later_changes_the_verdict(project):
    tree = SourceTree(project(TEXT.replace('"cpu"', '"vulkan"'), FILES))
    with pytest.raises(ConfigError):
        open_project(tree.root, tree)
    assert any(Path(path).name == "site-packages" for path in tree.observed)


def test_looking_up_a_verdict_loads_little():
    code = "import sys, kbuild.cli.build_toml; print(*sys.modules)"
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"pydantic", "tomli", "tomlkit", "jinja2", "importlib.metadata"}
    assert not heavy & set(done.stdout.split())
