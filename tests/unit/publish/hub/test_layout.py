"""What goes where, and what of a branch has to go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.plan.digest import digest_variant
from kbuild.publish.hub.candidate import folder_as_uploaded
from kbuild.publish.hub.layout import UploadLayout, read_layout, variant_files, variant_of
from kbuild.publish.hub.repository import RemoteFile, UploadFile, read_upload_file


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    folder = tmp_path / "build" / "torch-cpu"
    (folder / "layers").mkdir(parents=True)
    (folder / "__init__.py").write_text("x = 1\n")
    (folder / "layers" / "__init__.py").write_text("")
    (folder / ".hidden").write_text("counted")
    (folder / "keep.orig").write_text("part of the build")
    (folder / "metadata.json").write_text(json.dumps({"digest": digest_variant(folder)}))
    return folder


def paths(layout: UploadLayout) -> list[str]:
    return [entry.path for entry in layout.entries]


class TestFiles:
    def test_what_editors_leave_stays_behind_and_what_was_built_does_not(
        self, variant: Path
    ) -> None:
        for name in (".DS_Store", "__init__.py~", ".__init__.py.swp", "._x", "a.rej"):
            (variant / name).write_text("junk")
        (variant / "__pycache__").mkdir()
        (variant / "__pycache__" / "x.cpython-311.pyc").write_text("junk")
        sent = [path for path, _ in variant_files(variant)]
        names = ["__init__.py", "layers/__init__.py", ".hidden", "keep.orig", "metadata.json"]
        assert sorted(sent) == sorted(f"build/torch-cpu/{name}" for name in names)
        with folder_as_uploaded(variant) as seen:
            assert seen != variant
            assert (
                digest_variant(seen) == json.loads((seen / "metadata.json").read_text())["digest"]
            )

    def test_benchmarks(self, variant: Path, tmp_path: Path) -> None:
        for name in ("benchmark.py", "benchmark_big.py", "other.py", "results/one.json",
                     "results/notes.txt", "deep/benchmark.py"):  # fmt: skip
            path = tmp_path / "benchmarks" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        found = [path for path in paths(read_layout([variant], tmp_path)) if path[:3] == "ben"]
        expected = ["benchmark.py", "benchmark_big.py", "results/one.json"]
        assert found == [f"benchmarks/{name}" for name in expected]
        assert read_layout([variant], None).benchmarks is None

    def test_hashes_are_those_of_git_and_of_lfs(self, variant: Path) -> None:
        file = variant / "__init__.py"
        entry = read_upload_file("x", file)
        assert entry.blob == "7d4290a117a4ddcc11daae7ea675841033830c8f"
        assert read_upload_file("x", b"").blob == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        assert entry == UploadFile(
            "x", file, 6, read_upload_file("x", b"x = 1\n").sha256, entry.blob
        )
        assert entry.blob == read_upload_file("x", b"x = 1\n").blob
        assert entry.is_in(RemoteFile(6, entry.blob))
        assert not entry.is_in(RemoteFile(6, entry.blob, sha256="0" * 64))
        assert entry.is_in(RemoteFile(6, "pointer", entry.sha256))
        assert not entry.is_in(None)


@pytest.mark.parametrize(
    ("path", "variant"),
    [
        ("build/torch-cpu/__init__.py", "torch-cpu"),
        ("build/torch-cpu/layers/x.py", "torch-cpu"),
        ("build/notes.txt", ""),
        ("README.md", ""),
        ("benchmarks/benchmark.py", ""),
    ],
)
def test_whose_path_it_is(path: str, variant: str) -> None:
    assert variant_of(path) == variant


class TestStale:
    REMOTE = (
        "README.md",
        "LICENSE",
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/old.py",
        "build/torch-xpu/__init__.py",
        "benchmarks/benchmark_old.py",
        "benchmarks/data.csv",
    )

    def test_on_a_branch_that_exists(self, variant: Path, tmp_path: Path) -> None:
        own = ("build/torch-cpu/old.py",)
        assert read_layout([variant], None).stale(self.REMOTE, is_new=False) == own
        (tmp_path / "benchmarks").mkdir()
        layout = read_layout([variant], tmp_path)
        assert layout.stale(self.REMOTE, is_new=False) == ("benchmarks/benchmark_old.py", *own)

    def test_on_a_new_one(self, variant: Path, tmp_path: Path) -> None:
        build = tuple(
            sorted(
                p for p in self.REMOTE if p.startswith("build/") and not p.endswith("__init__.py")
            )
        )
        built = (*build, "build/torch-xpu/__init__.py")
        assert read_layout([variant], None).stale(self.REMOTE, is_new=True) == tuple(sorted(built))
        (tmp_path / "benchmarks").mkdir()
        told = read_layout([variant], tmp_path).stale(self.REMOTE, is_new=True)
        assert {"benchmarks/benchmark_old.py", "benchmarks/data.csv"} < {*told}
