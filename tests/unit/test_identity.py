import subprocess
from pathlib import Path

import pytest

from kbuild.identity import identify
from kbuild.run import LocalRunner
from kbuild.sourcetree import SourceTree


def git(root: Path, *arguments: str) -> str:
    config = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    command = ("git", *config, *arguments)
    return subprocess.run(  # noqa: TID251
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "repo" / "kernel"
    root.mkdir(parents=True)
    (root / "a.cpp").write_text("int a;\n")
    (root.parent / "other.txt").write_text("unrelated\n")
    return root


def identity(root: Path):
    return identify(SourceTree(root), ["a.cpp"], LocalRunner())


def test_outside_git_the_content_decides(project: Path) -> None:
    first = identity(project)
    assert first == identity(project)
    assert first.commit is None
    assert not first.dirty
    (project / "a.cpp").write_text("int b;\n")
    assert identity(project).unique_id != first.unique_id


def test_in_git_it_is_the_tree_of_the_folder(project: Path) -> None:
    git(project.parent, "init", "-q")
    git(project.parent, "add", "-A")
    git(project.parent, "commit", "-qm", "one")
    found = identity(project)
    assert found.unique_id == git(project, "rev-parse", "HEAD:kernel")[:7]
    assert found.commit == git(project, "rev-parse", "HEAD")
    (project.parent / "other.txt").write_text("changed\n")
    assert not identity(project).dirty
    git(project.parent, "commit", "-qam", "two")
    assert identity(project).unique_id == found.unique_id


def test_changed_tracked_files_are_dirty_and_untracked_ones_are_not(project: Path) -> None:
    git(project.parent, "init", "-q")
    git(project.parent, "add", "-A")
    git(project.parent, "commit", "-qm", "one")
    clean = identity(project)
    (project / "new.txt").write_text("untracked")
    assert identity(project) == clean
    (project / "a.cpp").write_text("int c;\n")
    assert identity(project).unique_id == f"{clean.unique_id}_dirty"
    assert identity(project).dirty


def test_without_a_commit_it_is_the_index(project: Path) -> None:
    git(project.parent, "init", "-q")
    git(project.parent, "add", "-A")
    first = identity(project)
    assert first == identity(project)
    (project / "a.cpp").write_text("int d;\n")
    assert identity(project).unique_id == f"{first.unique_id}_dirty"
