"""git is asked without running what a repository names, and without changing it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kbuild.__main__ import main
from kbuild.pipeline.package import running_builder
from kbuild.plan.metadata import GitState
from kbuild.plan.variant import identify
from kbuild.publish.reproduce import copy_source
from kbuild.system.errors import ToolchainError
from kbuild.system.git import Repository
from kbuild.system.processes import LocalRunner
from kbuild.system.sourcetree import SourceTree
from kbuild.toolchains.dependency_headers.fetch import GitClient
from tests.support.git_repository import commit, git


def repository(root: Path) -> Repository:
    return Repository(root, LocalRunner())


def identity(root: Path, *sources: str):
    return identify(SourceTree(root), sources or ("a.cpp",), LocalRunner())


def index_from_later(root: Path) -> None:
    """As if the index had been written long after the files: nothing is read for being young."""
    index = root / ".git" / "index"
    later = index.stat().st_mtime_ns + 3600 * 10**9
    os.utime(index, ns=(later, later))


def saved_within_the_second(path: Path, text: str) -> None:
    """Other content of the same size and time."""
    status = path.stat()
    assert len(text) == status.st_size
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "kernel"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.cpp").write_text("int a;\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link.cpp").symlink_to("a.cpp")
    commit(root)
    return root


class TestFreshness:
    def test_touching_changes_nothing(self, project: Path) -> None:
        before = identity(project)
        for name in ("a.cpp", "run.sh"):
            os.utime(project / name, ns=(1, 1))
        (project / "link.cpp").unlink()
        (project / "link.cpp").symlink_to("a.cpp")
        assert git(project, "diff-files", "--name-only") != ""  # git's index says otherwise
        assert identity(project) == before
        assert not before.dirty

    def test_an_edit_is_dirty_until_it_is_taken_back(self, project: Path) -> None:
        before = identity(project)
        (project / "a.cpp").write_text("int b;\n")
        assert identity(project).dirty
        (project / "a.cpp").write_text("int a;\n")
        assert identity(project) == before

    def test_an_edit_of_the_same_size_in_the_same_moment(self, project: Path) -> None:
        saved_within_the_second(project / "a.cpp", "int z;\n")
        assert identity(project).dirty

    def test_a_mode_is_part_of_it(self, project: Path) -> None:
        (project / "run.sh").chmod(0o644)
        assert identity(project).dirty
        git(project, "config", "core.fileMode", "false")
        assert not identity(project).dirty

    def test_a_link_elsewhere_and_a_file_instead_of_a_link(self, project: Path) -> None:
        (project / "link.cpp").unlink()
        (project / "link.cpp").symlink_to("run.sh")
        assert repository(project).is_changed(".")
        (project / "link.cpp").unlink()
        (project / "link.cpp").write_text("a.cpp")
        assert repository(project).is_changed(".")

    def test_a_file_that_is_to_be_added(self, project: Path) -> None:
        (project / "new.cpp").write_text("")
        git(project, "add", "--intent-to-add", "new.cpp")
        assert repository(project).is_changed(".")

    def test_names_that_git_quotes(self, project: Path) -> None:
        name = 'tab\t"quoted" \\ é.cpp'
        (project / name).write_text("")
        commit(project)
        os.utime(project / name, ns=(1, 1))
        assert not identity(project, name).dirty
        (project / name).write_text("other")
        assert identity(project, name).dirty

    def test_before_the_first_commit(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q")
        (tmp_path / "a.cpp").write_text("int a;\n")
        git(tmp_path, "add", "-A")
        before = identity(tmp_path)
        os.utime(tmp_path / "a.cpp", ns=(1, 1))
        assert identity(tmp_path) == before
        assert not before.dirty
        saved_within_the_second(tmp_path / "a.cpp", "int z;\n")
        assert identity(tmp_path).dirty

    def test_ids_of_sha256(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "--object-format=sha256")
        (tmp_path / "a.cpp").write_text("int a;\n")
        commit(tmp_path)
        os.utime(tmp_path / "a.cpp", ns=(1, 1))
        assert not identity(tmp_path).dirty
        (tmp_path / "a.cpp").write_text("int z;\n")
        assert identity(tmp_path).dirty

    def test_nothing_is_written(self, project: Path) -> None:
        os.utime(project / "a.cpp", ns=(1, 1))
        before = state_of(project / ".git")
        identity(project)
        repository(project).uncommitted(("a.cpp",))
        assert state_of(project / ".git") == before


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
        for path in (folder, *folder.rglob("*"))
    }


class TestConversions:
    """Files that are not what their blobs are."""

    POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 10\n"

    def test_a_clone_without_git_lfs(self, project: Path) -> None:
        (project / "weights.bin").write_text(self.POINTER)
        commit(project)
        (project / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
        commit(project)
        git(project, "config", "filter.lfs.clean", "git-lfs-that-is-not-there")
        git(project, "config", "filter.lfs.required", "true")
        os.utime(project / "weights.bin", ns=(1, 1))
        assert not identity(project).dirty
        (project / "weights.bin").write_bytes(b"other bytes")
        assert identity(project).dirty

    def test_a_filter_whose_name_cannot_be_switched_off(self, project: Path) -> None:
        git(project, "config", "filter.a=b.clean", "cat")
        assert identity(project).dirty

    def test_line_ends(self, project: Path) -> None:
        (project / "a.cpp").write_bytes(b"int a;\r\n")
        assert identity(project).dirty
        git(project, "config", "core.autocrlf", "true")
        git(project, "checkout", "--force", "a.cpp")
        assert (project / "a.cpp").read_bytes() == b"int a;\r\n"
        os.utime(project / "a.cpp", ns=(1, 1))
        assert not identity(project).dirty
        (project / "a.cpp").write_bytes(b"int b;\r\n")
        assert identity(project).dirty

    def test_another_filter_is_believed_while_the_file_looks_as_it_did(self, project: Path) -> None:
        git(project, "config", "filter.upper.clean", "tr a-z A-Z")
        (project / ".gitattributes").write_text("b.cpp filter=upper\n")
        (project / "b.cpp").write_text("int b;\n")
        commit(project)
        assert git(project, "show", "HEAD:b.cpp") == "INT B;"
        index_from_later(project)
        assert not identity(project).dirty
        os.utime(project / "b.cpp", ns=(1, 1))
        assert identity(project).dirty
        git(project, "status")  # the author's own git may run it
        index_from_later(project)
        assert not identity(project).dirty


class TestTraps:
    """Everything by which a repository can have a program run."""

    CONFIG = """\
[core]
    fsmonitor = {trap}
    hooksPath = {hooks}
    sshCommand = {trap}
    gitProxy = {trap}
    askPass = {trap}
    pager = {trap}
    editor = {trap}
    alternateRefsCommand = {trap}
[filter "evil"]
    clean = {trap}
    smudge = {trap}
    process = {trap}
    required = true
[diff]
    external = {trap}
[diff "evil"]
    textconv = {trap}
    command = {trap}
[merge "evil"]
    driver = {trap}
[alias]
    rev-parse = !{trap}
    ls-files = !{trap}
    diff-index = !{trap}
    cat-file = !{trap}
    check-attr = !{trap}
[credential]
    helper = !{trap}
[gpg]
    program = {trap}
[log]
    showSignature = true
[pager]
    ls-files = {trap}
    rev-parse = {trap}
    cat-file = {trap}
[protocol]
    allow = always
[protocol "ext"]
    allow = always
[remote "origin"]
    url = ext::{trap}
    fetch = +refs/heads/*:refs/remotes/origin/*
    promisor = true
    uploadpack = {trap}
[url "ext::{trap} "]
    insteadOf = https://example.invalid/
[submodule "third_party"]
    update = !{trap}
[uploadpack]
    packObjectsHook = {trap}
[extensions]
    partialClone = origin
"""

    @pytest.fixture
    def marker(self, tmp_path: Path) -> Path:
        return tmp_path / "marker"

    @pytest.fixture
    def trapped(self, project: Path, tmp_path: Path, marker: Path) -> Path:
        """A project with a submodule, whose configurations are full of programs."""
        library = tmp_path / "library"
        library.mkdir()
        git(library, "init", "-q")
        (library / "lib.h").write_text("int l;\n")
        commit(library)
        (project / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        for name, text in FILES.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        git(project, "submodule", "--quiet", "add", str(library), "third_party")
        signed(project, commit(project))
        trap, hooks = tmp_path / "trap", tmp_path / "hooks"
        trap.write_text(f"#!/bin/sh\necho $0 $* >> {marker}\nexit 1\n")
        trap.chmod(0o755)
        hooks.mkdir()
        text = self.CONFIG.format(trap=trap, hooks=hooks)
        for folder in (project / ".git", project / ".git" / "modules" / "third_party"):
            with (folder / "config").open("a") as config:
                config.write(f'[includeIf "gitdir:**"]\n    path = {tmp_path}/more\n')
            git(
                project,
                "config",
                "--file",
                str(folder / "config"),
                "core.repositoryFormatVersion",
                "1",
            )
            for name in HOOKS:
                for place in (hooks, folder / "hooks"):
                    (place / name).unlink(missing_ok=True)
                    (place / name).symlink_to(trap)
        (tmp_path / "more").write_text(text)
        with (project / ".git" / "config").open("a") as config:
            config.write(text)
        for name in ("a.cpp", "run.sh", "third_party/lib.h", *FILES):
            os.utime(project / name, ns=(1, 1))
        return project

    def test_the_traps_work(self, trapped: Path, marker: Path) -> None:
        for command in (("status",), ("show",), ("ls-remote", "https://example.invalid/x")):
            marker.unlink(missing_ok=True)
            git_as_it_is(trapped, *command)
            assert marker.exists(), command

    def test_an_identity(self, trapped: Path, marker: Path) -> None:
        found = identity(trapped, "a.cpp", "third_party/lib.h")
        assert found.commit == rev(trapped)
        assert not found.dirty
        (trapped / "third_party" / "lib.h").write_text("int other;\n")
        assert identity(trapped, "a.cpp", "third_party/lib.h").dirty
        (trapped / "a.cpp").write_text("int other;\n")
        assert identity(trapped).dirty
        assert not marker.exists()

    def test_objects_that_are_not_here(self, trapped: Path, marker: Path) -> None:
        absent = "1" * 40
        assert repository(trapped).ask("cat-file", "-e", f"{absent}^{{commit}}") is None
        assert not marker.exists()

    def test_a_checkout_of_kbuild(self, trapped: Path, marker: Path) -> None:
        found = running_builder(LocalRunner(), trapped / "kbuild")
        assert found.git == GitState(rev(trapped), dirty=False)
        (trapped / "kbuild" / "__init__.py").write_text("edited = True\n")
        found = running_builder(LocalRunner(), trapped / "kbuild")
        assert found.git == GitState(rev(trapped), dirty=True)
        assert not marker.exists()

    @pytest.mark.parametrize("verb", ["plan", "check-config", "list-variants"])
    def test_a_command(
        self,
        trapped: Path,
        marker: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        verb: str,
    ) -> None:
        monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
        assert main([verb, "--quiet", str(trapped)]) == 0
        assert not marker.exists()

    @pytest.mark.parametrize("is_dirty", [False, True])
    def test_another_place_to_build_in(
        self, trapped: Path, marker: Path, tmp_path: Path, *, is_dirty: bool
    ) -> None:
        state = GitState(rev(trapped), dirty=is_dirty)
        fresh = copy_source(trapped, state, tmp_path / "elsewhere", LocalRunner())
        assert (fresh.root / "a.cpp").read_text() == "int a;\n"
        assert not marker.exists()

    def test_a_work_tree_elsewhere(self, trapped: Path, marker: Path, tmp_path: Path) -> None:
        """Such a repository has no commit of the files here."""
        (tmp_path / "other").mkdir()
        config = str(trapped / ".git" / "config")
        git(tmp_path, "config", "--file", config, "core.worktree", str(tmp_path / "other"))
        found = identity(trapped)
        assert (found.commit, found.dirty) == (None, True)
        assert not marker.exists()

    def test_headers_that_are_fetched(
        self, trapped: Path, marker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(trapped)
        target = tmp_path / "scratch" / "tree"
        target.parent.mkdir()
        with pytest.raises(ToolchainError):
            GitClient(LocalRunner(), os.environ).clone("https://example.invalid/x", "v1", target)
        assert not marker.exists()


FILES = {
    "build.toml": """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["a.cpp"]
""",
    "torch-ext/relu/__init__.py": "__all__ = []\n",
    "kbuild/__init__.py": "",
}
HOOKS = (
    "post-checkout", "post-index-change", "pre-commit", "reference-transaction",
    "fsmonitor-watchman", "query-watchman",
)  # fmt: skip


def rev(root: Path) -> str:
    return (root / ".git" / "refs" / "heads" / "main").read_text().strip()


def git_as_it_is(root: Path, *arguments: str) -> None:
    subprocess.run(("git", *arguments), cwd=root, check=False, capture_output=True)  # noqa: TID251


def signed(root: Path, head: str) -> None:
    """Give the commit a signature that somebody would have to verify."""
    text = git(root, "cat-file", "commit", head)
    header, _, message = text.partition("\n\n")
    seal = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    whole = f"{header}\n{seal}\n\n{message}\n"
    made = subprocess.run(  # noqa: TID251
        ("git", "hash-object", "-t", "commit", "-w", "--stdin"),
        cwd=root, input=whole, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    git(root, "update-ref", "HEAD", made)
