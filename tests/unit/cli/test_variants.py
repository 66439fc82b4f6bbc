"""Finding built variants, and the commands for them: check-builds, check-abi, hash, clean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.cli.variants import find_variants
from kbuild.system.files import FileSet

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch-cuda"


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "metadata.json").write_text("{}")
    return folder


def names(paths):
    return [path.name for path in paths]


class TestDiscovery:
    def test_build_comes_before_a_stale_result(self, tmp_path):
        make(tmp_path / "build", CPU)
        make(tmp_path / "result", CUDA)
        assert find_variants(tmp_path) == (tmp_path / "build" / CPU,)


def test_check_abi_has_nothing_to_say_about_python(kbuild, variant):
    (variant / "__init__.py").write_text("from demo import nothing\n")
    assert kbuild("check-abi", "demo").code == 0


class TestHash:
    def test_check_write_check(self, kbuild, variant):
        assert kbuild("hash", "demo", "--check").code == 6
        assert kbuild("hash", "demo").out.endswith("torch-cuda  written\n")
        assert kbuild("hash", "demo", "--check").code == 0
        (variant / "__init__.py").write_text("changed = True\n")
        assert kbuild("hash", "demo", "--check", "--json").json[0]["changed"] is True

    def test_what_no_digest_counts(self, kbuild, variant):
        """A digest is written, and says so; a check fails."""
        (variant / "__pycache__").mkdir()
        (variant / "__pycache__" / "x.cpython-311.pyc").write_text("")
        (variant / "empty").mkdir()
        written = kbuild("hash", "demo")
        assert written.code == 0
        assert "`empty` is an empty folder" in written.err
        checked = kbuild("hash", "demo", "--check")
        assert checked.code == 6
        assert "`__pycache__/x.cpython-311.pyc` is bytecode" in checked.err
        (told,) = kbuild("hash", "demo", "--check", "--json").json
        assert told["changed"] is False
        assert [stray["path"] for stray in told["unaccounted"]] == [
            "__pycache__/x.cpython-311.pyc",
            "empty",
        ]


class TestCleanPyproject:
    """B1 of the reference tool: files of the current folder went instead of the target's."""

    @pytest.fixture
    def target(self, here, demo):
        (here / "setup.py").write_text("the user's own")
        target = here / "target"
        FileSet({"setup.py": "a", "cmake/x.cmake": "b", "edited.py": "c"}).write(target)
        (target / "edited.py").write_text("by hand")
        (target / "own.py").write_text("mine")
        return target

    def test_only_what_kbuild_wrote(self, kbuild, target, here):
        answer = kbuild("clean-pyproject", "demo", "target")
        assert answer.code == 0
        assert "edited.py has been edited and was kept" in answer.err
        assert sorted(path.name for path in target.iterdir()) == [
            ".kbuild-files.json",
            "edited.py",
            "own.py",
        ]
        assert (here / "setup.py").read_text() == "the user's own"

    def test_a_manifest_cannot_point_outside(self, kbuild, target, here):
        files = {"../setup.py": "0", str(here / "setup.py"): "0"}
        (target / ".kbuild-files.json").write_text(json.dumps({"files": files}))
        assert kbuild("clean-pyproject", "demo", "target", "--force").out == ""
        assert (here / "setup.py").exists()


def test_variants_for_tvm_ffi_serve_every_release_of_torch(kbuild, here):
    """They were selected by the newest release that has them, which differs among backends."""
    pair = ("--framework", "tvm-ffi", "--backends", "cuda", "rocm")
    kbuild("init", "demo", "--no-git", *pair)
    every = kbuild("list-variants", "demo", "--json").json
    assert {"cuda", "rocm"} == {one["backend"] for one in every}
    assert kbuild("list-variants", "demo", "--torch", "2.13", "--json").json == every
