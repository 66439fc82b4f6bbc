"""One project in the hands of Nix: what changes a variant's source, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError
from tests.support.command_project import GIT, run
from tests.support.nix.evaluation import NixBench, copied, flake, needs_nix, nix_bench, unpack

pytestmark = [pytest.mark.quick, needs_nix]


@pytest.fixture(scope="module")
def bench():
    with nix_bench() as made:
        yield made


def unpacked(bench: NixBench, source: dict[str, Any], place: Path) -> Path:
    """The project as a derivation sees it."""
    unpack(bench, {place: source})
    return place / "unpacked"


ONE = """
  one = let
    root = ./kernel;
    toml = lib.readProject root;
    sources = sourcesOf { inherit root toml; variants = variantsOf { inherit toml; }; };
    source = sources.variants.torch213-cxx11-cpu-x86_64-linux;
  in {
    inherit (source) files isLinked tree;
    inherit (sources) missing;
    unpack = source.unpack "unpacked";
  };
"""


OTHERS = (
    *("tests/new.py", "docs/a.md", "CARD.md", "torch-ext/relu/notes.txt", ".benchmarks/x"),
    *("build/torch-cuda/x.h", "relu_cuda/relu.cu", "relu_cuda/new.h"),
)


class TestOneProject:
    """relu, changed in ways that Nix must live with."""

    @pytest.fixture
    def kernel(self, tmp_path) -> Path:
        root = flake(tmp_path / "flake", ONE) / "kernel"
        return copied("relu", root)

    def source(self, bench: NixBench, kernel: Path) -> dict[str, Any]:
        found, _ = bench.eval(f"path:{kernel.parent}#one")
        assert isinstance(found, dict)
        return found

    def refusal(self, bench: NixBench, kernel: Path, place: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            open_project(unpacked(bench, self.source(bench, kernel), place))
        return str(caught.value)

    def test_what_is_no_source_changes_nothing(self, bench, kernel) -> None:
        before = self.source(bench, kernel)
        for path in OTHERS:
            (kernel / path).parent.mkdir(parents=True, exist_ok=True)
            (kernel / path).write_text("// changed\n")
        assert self.source(bench, kernel) == before
        (kernel / "relu_cpu/relu_cpu.cpp").write_text("// changed\n")
        assert self.source(bench, kernel)["tree"] != before["tree"]

    @pytest.mark.parametrize("path", ["relu_cpu/relu_cpu.cpp", "relu_cuda/relu.cu"])
    def test_a_missing_file_is_reported_by_kbuild(self, bench, kernel, tmp_path, path) -> None:
        (kernel / path).unlink()
        assert self.source(bench, kernel)["missing"] == [path]
        assert f"`{path}` does not exist" in self.refusal(bench, kernel, tmp_path / "place")

    def test_other_mistakes_are_reported_by_kbuild(self, bench, kernel, tmp_path) -> None:
        file = kernel / "build.toml"
        changed = file.read_text().replace('"Apache-2.0"', "7").replace('"relu_cuda"]', '"../x"]')
        file.write_text(changed.replace('["relu_xpu/relu_xpu.cpp"]', '["relu_xpu"]'))
        refusal = self.refusal(bench, kernel, tmp_path / "place")
        assert "must be a string" in refusal
        assert "`../x` goes up with `..`" in refusal
        assert "`relu_xpu` is a folder" in refusal

    def test_without_a_build_file(self, bench, kernel) -> None:
        (kernel / "build.toml").unlink()
        _, said = bench.eval(f"path:{kernel.parent}#one", expect=1)
        assert "there is no build.toml" in said

    def test_a_build_file_that_is_no_toml(self, bench, kernel) -> None:
        (kernel / "build.toml").write_text("[general\n")
        _, said = bench.eval(f"path:{kernel.parent}#one", expect=1)
        assert "`kbuild check-config` says more" in said

    def test_links_within_the_project(self, bench, kernel, tmp_path) -> None:
        (kernel / "relu_cpu/relu_cpu.cpp").rename(kernel / "real.cpp")
        (kernel / "relu_cpu/relu_cpu.cpp").symlink_to("../real.cpp")
        source = self.source(bench, kernel)
        assert source["isLinked"]
        inside = unpacked(bench, source, tmp_path / "place")
        open_project(inside)
        text = (inside / "relu_cpu/relu_cpu.cpp").read_bytes()
        assert text == (kernel / "real.cpp").read_bytes()
        assert not (inside / ".gitignore").exists()

    @pytest.mark.parametrize("target", ["../../out.cpp", "/etc/passwd", "nowhere.cpp"])
    def test_links_to_nothing_in_the_project(self, bench, kernel, tmp_path, target) -> None:
        (kernel.parent / "out.cpp").touch()
        (kernel / "relu_cpu/relu_cpu.cpp").unlink()
        (kernel / "relu_cpu/relu_cpu.cpp").symlink_to(target)
        refusal = self.refusal(bench, kernel, tmp_path / "place")
        assert "kernel.relu-cpu.src" in refusal
        assert "`relu_cpu/relu_cpu.cpp`" in refusal

    def test_git_shows_only_what_it_knows(self, bench, kernel) -> None:
        def git(*arguments: str) -> None:
            done = run((*GIT, *arguments), cwd=kernel.parent)
            assert done.returncode == 0, done.stderr

        git("init", "-q")
        git("add", "-A")
        git("rm", "-q", "--cached", "kernel/relu_cpu/relu_cpu.cpp")
        url = f"git+file://{kernel.parent}#one"
        untracked, _ = bench.eval(url)
        assert untracked["missing"] == ["relu_cpu/relu_cpu.cpp"]
        git("add", "-A")
        found, _ = bench.eval(url)
        assert found == self.source(bench, kernel)
        git("commit", "-qm", "all of it")
        clean, _ = bench.eval(url)
        assert clean == found


@pytest.mark.parametrize("root", ['"${self}/kernel"', '(self + "/kernel")'])
def test_a_folder_given_as_text(bench, tmp_path, root) -> None:
    """Where the store is not at `/nix`, filters see other paths than the text says."""
    copied("relu", flake(tmp_path / "path", ONE) / "kernel")
    copied("relu", flake(tmp_path / "text", ONE.replace("./kernel", root)) / "kernel")
    by_path, _ = bench.eval(f"path:{tmp_path}/path#one")
    by_text, _ = bench.eval(f"path:{tmp_path}/text#one")
    assert by_path == by_text


def test_a_project_in_a_folder_of_a_repository(bench, tmp_path) -> None:
    """The kernel's own flake lies beside its `build.toml`, deep in a repository."""
    repository = tmp_path / "one repo"
    folder = repository / "kernels/relu"
    copied("relu", folder)
    flake(folder, ONE.replace("./kernel", "./."))
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        assert run((*GIT, *arguments), cwd=repository).returncode == 0
    url = f"git+file://{str(repository).replace(' ', '%20')}?dir=kernels/relu#one"
    found, _ = bench.eval(url)
    assert "relu_cpu/relu_cpu.cpp" in found["files"]
    assert not any(path.startswith("nix") for path in found["files"])
