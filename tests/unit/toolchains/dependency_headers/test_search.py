"""Where headers of dependencies are found, and which release is pinned."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Store
from kbuild.system.version import Version
from kbuild.toolchains.dependency_headers.pins import (
    DependencyHeaders,
    PinnedLibrary,
    PinnedWheel,
    dependency_headers,
    digest_of_folders,
    pin_of,
    tree_mismatch,
)
from kbuild.toolchains.dependency_headers.search import HeaderResolver, header_versions
from tests.support.cutlass_trees import COMMIT, FakeGit, make_tree, members, tree_files
from tests.support.wheel_index import make_wheel, pinned

ROOT = "cutlass_library/source"
TAG = "py3-none-any"


@dataclass
class Machine:
    """A user's machine: a folder of wheels as the only index, a git, a cache."""

    root: Path
    git: FakeGit
    wheel: PinnedWheel | None = None
    """Holds `cutlass_3_8`; without one the real pin is used."""

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def wheelhouse(self) -> Path:
        return self.root / "wheelhouse"

    def sources(self, **environ: str) -> HeaderResolver:
        given = {name: Path(path) for name, path in environ.items() if name.startswith("cutlass")}
        own = {name: value for name, value in environ.items() if name not in given}
        env = {
            "PATH": os.environ["PATH"],
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheelhouse),
        }
        return HeaderResolver(given, self.cache, self.git, env | own, self.pin_of)

    def pin_of(self, name: str, compiler: Version | None = None) -> PinnedLibrary:
        pin = pin_of(name, compiler)
        own = self.wheel if name == "cutlass_3_8" else None
        return replace(pin, wheel=own or pin.wheel)

    def stock(self, version: str) -> Path:
        """Put the wheel into the wheelhouse."""
        files = {f"{ROOT}/{name}": data for name, data in members(version).items()}
        files |= {"cutlass/__init__.py": b"", f"{ROOT}/examples/e.cu": b""}
        path = make_wheel(self.wheelhouse, "nvidia-cutlass", "3.8.0.0", files, tag=TAG)
        self.wheel = PinnedWheel(pinned(path), ROOT)
        return path

    def one(self, name: str = "cutlass_3_8", **environ: str) -> DependencyHeaders:
        (found,) = self.sources(**environ).resolve([name])
        return found

    def entries(self) -> list[str]:
        return [entry.name for entry in Store(self.cache / "store").entries()]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "wheelhouse").mkdir()
    yield Machine(tmp_path, FakeGit())
    Store(tmp_path / "cache" / "store").prune(0)  # its files are read-only


@pytest.fixture
def wheel(machine: Machine) -> Path:
    return machine.stock("3.8.0")


class TestFolders:
    def test_one_of_the_command_line(self, machine: Machine) -> None:
        tree = make_tree(machine.root / "mine")
        found = machine.one(cutlass_3_8=str(tree), CUTLASS_SRC_DIR="/nowhere")
        assert found.include_dirs == (tree / "include", tree / "tools/util/include")
        assert found.origin.startswith(f"{tree}, sha256 ")
        assert found.digest.startswith("sha256:")
        assert not machine.entries()
        given = {"cutlass_3_8": tree}
        assert HeaderResolver(given, machine.cache, machine.git).resolve(["cutlass_3_8"]) == (
            found,
        )

    def test_another_release_is_refused_with_both(self, machine: Machine) -> None:
        tree = make_tree(machine.root / "mine", "4.0.0")
        sources = machine.sources(cutlass_3_8=str(tree))
        words = f"--with-source cutlass_3_8={tree}: the folder is CUTLASS 4.0.0, not 3.8.0"
        for ask in (sources.resolve, sources.expected, sources.unsupported_reason):
            with pytest.raises(ToolchainError) as raised:
                ask(["cutlass_3_8"])
            assert raised.value.message == words
            assert "`include/cutlass/cutlass.h`" in raised.value.hint


class TestWheel:
    def test_only_headers_and_licences_are_kept(self, machine: Machine, wheel: Path) -> None:
        found = machine.one()
        locked = pinned(wheel)
        assert found.digest == f"sha256:{locked.sha256}"
        assert found.origin == (
            f"nvidia-cutlass 3.8.0.0 of the package index, sha256 {locked.sha256[:12]}"
        )
        assert tree_files(found.include_dirs[0].parent) == set(members())
        assert not machine.git.calls

    def test_once(self, machine: Machine, wheel: Path) -> None:
        first = machine.one()
        wheel.unlink()
        assert machine.one() == first
        assert [name.rpartition("-")[0] for name in machine.entries()] == [
            "source-cutlass_3_8-3.8.0"
        ]

    def test_another_release_in_the_wheel(self, machine: Machine) -> None:
        machine.stock("3.7.0")
        with pytest.raises(
            ToolchainError, match=r"the fetched source is CUTLASS 3\.7\.0, not 3\.8"
        ):
            machine.one()
        assert not machine.entries()


class TestGit:
    @pytest.fixture
    def remote(self, machine: Machine) -> Path:
        tree = make_tree(machine.root / "remote", "4.0.0")
        (tree / "LICENSE.txt").write_text("BSD")
        (tree / "media").mkdir()
        (tree / "media" / "big.png").write_text("")
        machine.git = FakeGit(tree, ("v4.0.0",))
        return tree

    def test_headers_and_commit(self, machine: Machine, remote: Path) -> None:
        (before,) = machine.sources().expected(["cutlass_4_0"])
        found = machine.one("cutlass_4_0")
        assert (found.digest, before.digest) == (f"commit:{COMMIT}", "")
        assert before.origin == "git tag v4.0.0, not fetched yet"
        assert before.include_dirs == found.include_dirs
        assert tree_files(found.include_dirs[0].parent) == {*members(), "LICENSE.txt"}
        assert machine.git.verbs == ["ls-remote", "clone", "rev-parse"]
        assert machine.one("cutlass_4_0") == found
        assert len(machine.git.calls) == 3
        (entry,) = Store(machine.cache / "store").entries()
        assert entry.facts["sources"][0]["commit"] == COMMIT
        assert [path.name for path in entry.folder.iterdir() if path.name.startswith(".")] == []

    def test_a_server_that_does_not_answer(self, machine: Machine) -> None:
        machine.git = FakeGit(code=124, fails="")
        with pytest.raises(ToolchainError, match="no answer within 20 seconds"):
            machine.one("cutlass_4_0")


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
class TestCommits:
    """With a real git, led to a repository of this machine as its `insteadOf` allows."""

    NAME, TAG = "cutlass_4_0", "v4.0.0"

    @pytest.fixture
    def repository(self, tmp_path: Path) -> Path:
        made = make_tree(tmp_path / "repository", "4.0.0")
        self._git(made, "init", "--quiet")
        self._tag(made)
        return made

    def _git(self, folder: Path, *words: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@test", "-c", "commit.gpgsign=false")
        command = ("git", *author, *words)
        done = LocalRunner().run(command, cwd=folder, env={"PATH": os.environ["PATH"]})
        assert done.ok, done.output
        return done.output.strip()

    def _tag(self, repository: Path) -> str:
        """Commit what is there, and make the tag that commit."""
        self._git(repository, "add", ".")
        self._git(repository, "commit", "--quiet", "--allow-empty", "-m", "it")
        self._git(repository, "tag", "--force", self.TAG)
        return self._git(repository, "rev-parse", "HEAD")

    @pytest.fixture
    def sources(self, tmp_path: Path, repository: Path) -> Iterator[Callable[[], HeaderResolver]]:
        url = pin_of(self.NAME).library.repository
        config = tmp_path / "gitconfig"
        config.write_text(f'[url "{repository.as_uri()}"]\n  insteadOf = {url}\n')
        environ = {
            "PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": str(config), "PIP_NO_INDEX": "1"
        }  # fmt: skip
        yield lambda: HeaderResolver({}, tmp_path / "cache", LocalRunner(), environ)
        Store(tmp_path / "cache" / "store").prune(0)

    def test_hooks_of_the_user_do_not_run(self, sources, tmp_path) -> None:
        hook = tmp_path / "hooks" / "post-checkout"
        hook.parent.mkdir()
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        with (tmp_path / "gitconfig").open("a") as config:
            config.write(f"[core]\n  hooksPath = {hook.parent}\n")
        (found,) = sources().resolve([self.NAME])
        assert found.digest.startswith("commit:")

    def test_the_commit_is_recorded(self, sources, repository) -> None:
        (found,) = sources().resolve([self.NAME])
        commit = self._git(repository, "rev-parse", "HEAD")
        assert found.digest == f"commit:{commit}"
        assert (
            dict(header_versions([found]))[self.NAME]
            == f"4.0.0 (git tag v4.0.0, commit {commit[:12]})"
        )
        (entry,) = sources().store.entries()
        assert entry.facts["sources"][0]["commit"] == commit

    def test_a_tag_that_moved_is_refused(self, sources, repository) -> None:
        first = self._git(repository, "rev-parse", "HEAD")
        sources().resolve([self.NAME])
        sources().store.prune(0)
        (repository / "include/cutlass/cutlass.h").write_text("#error\n")
        second = self._tag(repository)
        words = f"is commit {second[:12]}, but was {first[:12]} when it was first fetched"
        with pytest.raises(ToolchainError, match=words) as raised:
            sources().resolve([self.NAME])
        assert sources().store.entries() == ()
        (kept,) = (sources().cache / "commits").iterdir()
        assert f"delete {kept}" in raised.value.message
        kept.unlink()
        assert sources().resolve([self.NAME])[0].digest == f"commit:{second}"


class TestUnavailable:
    def test_no_way_at_all(self, machine: Machine) -> None:
        sources = machine.sources()
        assert sources.unsupported_reason(["metal-cpp"]) == (
            "needs the headers of metal-cpp 26, which cannot be fetched; "
            "--with-source metal-cpp=DIR takes a folder"
        )
        for ask in (sources.expected, sources.resolve):
            with pytest.raises(ToolchainError) as raised:
                ask(["metal-cpp"])
            assert "git: no repository with metal-cpp is known" in raised.value.message
            assert raised.value.hint.splitlines()[1:] == [
                "    kbuild build --with-source metal-cpp=metal-cpp-26"
            ]


@pytest.mark.parametrize(
    ("compiler", "version", "wheel"), [("2025.3", "0.8", True), ("2026.1", "0.9.2", False)]
)
def test_a_release_by_compiler(compiler: str, version: str, wheel: bool) -> None:
    pin = pin_of("sycl_tla", Version.parse(compiler))
    assert (pin.version, pin.tag, pin.wheel is not None) == (version, f"v{version}", wheel)
    assert pin.title == f"SYCL*TLA {version}"


@pytest.mark.parametrize("compiler", [None, Version((2024, 1))])
def test_no_release_for_the_compiler(compiler: Version | None) -> None:
    with pytest.raises(ToolchainError, match=r"no release of SYCL\*TLA") as raised:
        pin_of("sycl_tla", compiler)
    assert "2025.3" in raised.value.hint


PIN = pin_of("cutlass_3_8")


def test_another_release(tmp_path: Path) -> None:
    assert tree_mismatch(PIN, make_tree(tmp_path, "4.0.0")) == "is CUTLASS 4.0.0, not 3.8.0"


def test_a_dependency_whose_headers_do_not_say_their_release(tmp_path: Path) -> None:
    pin = pin_of("metal-cpp")
    (tmp_path / "Metal").mkdir()
    (tmp_path / "Metal" / "Metal.hpp").write_text("")
    assert tree_mismatch(pin, tmp_path) is None
    source = dependency_headers(pin, tmp_path, "", "")
    assert (source.fact, source.include_dirs) == ("KBUILD_METAL_CPP_INCLUDE_DIRS", (tmp_path,))


def test_the_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "two")
    (two / "README").write_text("not a header")
    (two / "include" / ".cache").mkdir()
    (two / "include" / ".cache" / "x").write_text("")
    digests = [
        digest_of_folders(dependency_headers(PIN, root, "", "").include_dirs) for root in (one, two)
    ]
    assert digests[0] == digests[1]
    (two / "include/cutlass/cutlass.h").write_text("// edited\n")
    assert digest_of_folders(dependency_headers(PIN, two, "", "").include_dirs) != digests[0]
