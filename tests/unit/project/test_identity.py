from pathlib import Path

import pytest

from kbuild.plan.variant import identify
from kbuild.system.processes import LocalRunner
from kbuild.system.sourcetree import SourceTree
from tests.support.git_repository import commit, git


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


class TestDirt:
    """Everything by which what is built can differ from the commit."""

    @pytest.fixture
    def clean(self, project: Path) -> Path:
        git(project.parent, "init", "-q")
        commit(project.parent)
        assert not identity(project).dirty
        return project

    def assert_dirty(self, root: Path, *sources: str) -> None:
        found = identify(SourceTree(root), ["a.cpp", *sources], LocalRunner())
        assert found.dirty
        assert found.unique_id.endswith("_dirty")
        assert found.commit == git(root, "rev-parse", "HEAD")

    def test_a_staged_change(self, clean: Path) -> None:
        (clean / "a.cpp").write_text("int staged;\n")
        git(clean, "add", "-A")
        self.assert_dirty(clean)

    def test_a_deleted_file(self, clean: Path) -> None:
        (clean / "b.txt").write_text("")
        commit(clean)
        (clean / "b.txt").unlink()
        self.assert_dirty(clean)

    def test_an_untracked_source(self, clean: Path) -> None:
        (clean / "new.cpp").write_text("int n;\n")
        assert not identity(clean).dirty  # not a source yet
        self.assert_dirty(clean, "new.cpp")

    def test_a_source_that_git_ignores(self, clean: Path) -> None:
        (clean / ".gitignore").write_text("*_generated.cpp\n")
        commit(clean)
        (clean / "k_generated.cpp").write_text("int k;\n")
        assert not identity(clean).dirty
        self.assert_dirty(clean, "k_generated.cpp")

    def test_a_link_to_what_no_commit_holds(self, clean: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere.cpp").write_text("int e;\n")
        (clean / "link.cpp").symlink_to(tmp_path / "elsewhere.cpp")
        commit(clean)
        assert not identity(clean).dirty
        self.assert_dirty(clean, "link.cpp")

    def test_a_link_to_another_folder_of_the_repository(self, clean: Path) -> None:
        (clean / "link.txt").symlink_to("../other.txt")
        commit(clean)
        found = identify(SourceTree(clean), ["a.cpp", "link.txt"], LocalRunner())
        assert not found.dirty

    @pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
    def test_a_change_that_git_was_told_not_to_see(self, clean: Path, mark: str) -> None:
        git(clean, "update-index", mark, "a.cpp")
        (clean / "a.cpp").write_text("int hidden;\n")
        assert git(clean, "status", "--porcelain") == ""
        self.assert_dirty(clean)


class TestSubmodules:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        library, root = tmp_path / "library", tmp_path / "kernel"
        for folder in (library, root):
            folder.mkdir()
            git(folder, "init", "-q")
        (library / "lib.h").write_text("int l;\n")
        commit(library)
        (root / "a.cpp").write_text("int a;\n")
        git(root, "submodule", "--quiet", "add", str(library), "third_party")
        commit(root)
        return root

    def dirty(self, root: Path) -> bool:
        sources = ["a.cpp", "third_party/lib.h"]
        return identify(SourceTree(root), sources, LocalRunner()).dirty

    def test_as_committed(self, project: Path) -> None:
        assert not self.dirty(project)

    def test_a_change_inside(self, project: Path) -> None:
        (project / "third_party" / "lib.h").write_text("int other;\n")
        assert self.dirty(project)

    def test_another_commit_inside(self, project: Path) -> None:
        (project / "third_party" / "lib.h").write_text("int other;\n")
        commit(project / "third_party")
        assert self.dirty(project)


class TestRepositories:
    def test_a_shallow_clone(self, project: Path, tmp_path: Path) -> None:
        git(project.parent, "init", "-q")
        commit(project.parent)
        (project / "a.cpp").write_text("int b;\n")
        second = commit(project.parent)
        url = project.parent.as_uri()
        git(tmp_path, "clone", "-q", "--depth", "1", url, "shallow")
        found = identity(tmp_path / "shallow" / "kernel")
        assert (found.commit, found.dirty) == (second, False)
        assert found.unique_id == identity(project).unique_id

    def test_a_worktree(self, project: Path, tmp_path: Path) -> None:
        git(project.parent, "init", "-q")
        first = commit(project.parent)
        git(project.parent, "worktree", "add", "-q", str(tmp_path / "tree"))
        (project / "a.cpp").write_text("int only_here;\n")
        found = identity(tmp_path / "tree" / "kernel")
        assert (found.commit, found.dirty) == (first, False)
        assert identity(project).dirty

    def test_no_git_says_nothing(self, project: Path) -> None:
        found = identity(project)
        assert (found.commit, found.dirty, found.note) == (None, False, "")

    def test_a_folder_that_the_repository_ignores(self, project: Path) -> None:
        """The surrounding repository's commit says nothing about it."""
        git(project.parent, "init", "-q")
        (project.parent / ".gitignore").write_text("kernel/\n")
        commit(project.parent)
        assert identity(project).commit is None

    def test_a_hook_of_another_repository(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        git(project.parent, "init", "-q")
        first = commit(project.parent)
        other = tmp_path / "other"
        other.mkdir()
        git(other, "init", "-q")
        (other / "x").write_text("")
        commit(other)
        monkeypatch.setenv("GIT_DIR", str(other / ".git"))
        monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
        monkeypatch.setenv("GIT_WORK_TREE", str(other))
        assert identity(project).commit == first

    def test_a_repository_of_somebody_else_is_not_passed_over_in_silence(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        git(project.parent, "init", "-q")
        commit(project.parent)
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        found = identity(project)
        assert found.commit is None
        assert "dubious ownership" in found.note


def test_development_builds_of_all_states_have_one_id(project):
    first = identity(project).for_development()
    assert first.unique_id == "dev"
