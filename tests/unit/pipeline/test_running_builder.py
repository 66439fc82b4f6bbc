"""Which kbuild a variant says it was built by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild import __version__
from kbuild.pipeline.package import running_builder
from kbuild.plan.metadata import Builder, GitState
from kbuild.system.processes import LocalRunner
from tests.support.git_repository import commit, git


def builder(package: Path) -> Builder:
    found = running_builder(LocalRunner(), package)
    assert (found.name, found.version) == ("kbuild", __version__)
    return found


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package without anything around it."""
    folder = tmp_path / "somewhere" / "kbuild"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    return folder


def record(package: Path, content: object) -> None:
    info = package.parent / "kbuild-0.1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text(json.dumps(content))


class TestCheckout:
    @pytest.fixture
    def checkout(self, package: Path) -> Path:
        git(package.parent, "init", "-q")
        (package.parent / "templates").mkdir()
        (package.parent / "templates" / "a.cmake").write_text("")
        (package.parent / ".gitignore").write_text("__pycache__/\n")
        commit(package.parent)
        return package

    def test_clean(self, checkout: Path) -> None:
        head = git(checkout, "rev-parse", "HEAD")
        assert builder(checkout).git == GitState(head, dirty=False)

    @pytest.mark.parametrize("name", ["kbuild/__init__.py", "templates/a.cmake"])
    def test_a_changed_part(self, checkout: Path, name: str) -> None:
        (checkout.parent / name).write_text("# changed\n")
        found = builder(checkout).git
        assert found is not None
        assert found.dirty


def test_an_environment_inside_some_repository_is_not_its_commit(package: Path) -> None:
    """Such as `.venv/` in a kernel's own repository."""
    git(package.parents[1], "init", "-q")
    (package.parents[1] / "kernel.cpp").write_text("")
    git(package.parents[1], "add", "kernel.cpp")
    git(package.parents[1], "commit", "-qm", "kernel")
    assert builder(package).git is None


def test_installed_from_a_repository(package: Path) -> None:
    record(package, {"url": "git+file:///x", "vcs_info": {"vcs": "git", "commit_id": "A" * 40}})
    assert builder(package).git == GitState("a" * 40, dirty=False)
