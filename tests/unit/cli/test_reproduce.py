"""`kbuild reproduce` on Python-only variants, which need no compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.system.processes import LocalRunner
from tests.support.hub.fixture import HubBench, running_hub

pytestmark = pytest.mark.full


VARIANT = "torch-cuda"
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: TID251
        (*GIT, *arguments), cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, message: str = "demo") -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def built(kbuild, demo: Path) -> Path:
    """The variant directory of `demo`, built from a commit."""
    (demo / ".gitignore").write_text("build/\n.kbuild/\n")
    git(demo, "init", "-q")
    commit(demo)
    answer = kbuild("build", demo, "--variant", VARIANT)
    assert answer.code == 0, answer.err
    return demo / "build" / VARIANT


@pytest.mark.quick
def test_the_same_bytes(kbuild, demo, built):
    before = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    answer = kbuild("reproduce", demo, "--json")
    assert answer.code == 0, answer.err
    (outcome,) = answer.json
    assert (outcome["variant"], outcome["status"]) == (VARIANT, "same")
    assert outcome["files"] == len(before)
    assert before == {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}


@pytest.mark.quick
def test_a_changed_file_is_shown(kbuild, demo, built):
    (built / "__init__.py").write_text("one = 2\n")
    answer = kbuild("reproduce", demo)
    assert answer.code == 6
    assert f"{VARIANT}/__init__.py differs" in answer.out
    assert "-one = 2" in answer.out
    assert "+one = 1" in answer.out
    assert "1 of 1 variants differ" in answer.err


def test_the_recorded_commit_is_built(kbuild, demo, built):
    package = demo / "torch-ext" / "demo" / "__init__.py"
    package.write_text('"""Demo."""\n\n__all__ = ["one"]\n\none = 7\n')
    commit(demo, "seven")
    answer = kbuild("reproduce", demo)
    assert answer.code == 0, answer.out
    assert "built from commit" in answer.err
    assert "is built again" in answer.err


def test_uncommitted_changes_are_told_and_left_out(kbuild, demo, built):
    (demo / "torch-ext" / "demo" / "__init__.py").write_text("one = 7\n")
    answer = kbuild("reproduce", demo)
    assert answer.code == 0, answer.out
    assert "files here differ from commit" in answer.err


def test_built_from_changed_files(kbuild, demo, built):
    package = demo / "torch-ext" / "demo" / "__init__.py"
    package.write_text(package.read_text().replace("one = 1", "one = 3"))
    assert kbuild("build", demo, "--variant", VARIANT).code == 0
    answer = kbuild("reproduce", demo)
    assert answer.code == 0, answer.out
    assert "built from changed files" in answer.err
    package.write_text(package.read_text().replace("one = 3", "one = 4"))
    answer = kbuild("reproduce", demo)
    assert answer.code == 6
    assert "+one = 4" in answer.out


def test_a_commit_of_another_repository(kbuild, demo, built):
    metadata = json.loads((built / "metadata.json").read_text())
    metadata["provenance"]["kernel"]["commit"] = "0" * 40
    (built / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
    answer = kbuild("reproduce", demo)
    assert answer.code == 0, answer.out  # the recorded state is what it is built as
    assert "commit 000000000000 is not in this repository" in answer.err


def test_another_version_of_kbuild_is_told(kbuild, demo, built):
    metadata = json.loads((built / "metadata.json").read_text())
    metadata["provenance"]["kernel-builder"]["version"] = "0.0.1"
    (built / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
    answer = kbuild("reproduce", demo)
    assert answer.code == 6
    assert "built by kbuild 0.0.1" in answer.err


def test_against_another_folder_keeping_the_result(kbuild, demo, built, tmp_path):
    kept, moved = tmp_path / "kept", tmp_path / "published"
    built.parent.rename(moved)
    answer = kbuild("reproduce", demo, "--against", moved, "--output", kept)
    assert answer.code == 0, answer.err
    assert (kept / VARIANT / "metadata.json").read_bytes() == (
        moved / VARIANT / "metadata.json"
    ).read_bytes()


def test_the_compared_variant_is_never_the_output(kbuild, demo, built):
    answer = kbuild("reproduce", demo, "--output", demo / "build")
    assert answer.code == 2
    assert (built / "metadata.json").is_file()


class TestHub:
    """`huggingface_hub` reads its environment when it is imported: in a process of its own."""

    @pytest.fixture
    def hub(self, built: Path, tmp_path: Path) -> Iterator[HubBench]:
        pytest.importorskip("huggingface_hub")
        top = built.parents[1]
        files = [path for path in built.rglob("*") if path.is_file()]
        with running_hub(tmp_path / "hub") as bench:
            named = {path.relative_to(top).as_posix(): path.read_bytes() for path in files}
            bench.publish("org/demo", named)
            yield bench

    @pytest.mark.parametrize("how", [("hub:org/demo@v1",), (".", "--against", "hub:org/demo@v1")])
    def test_published_variants(self, hub, demo, how):
        shutil.rmtree(demo / "build")
        (demo / "torch-ext" / "demo" / "extra.py").write_text("two = 2\n")
        commit(demo, "later")
        argv = (sys.executable, "-m", "kbuild", "reproduce", *how, "--json")
        done = LocalRunner().run(argv, cwd=demo, env=hub.environ(None))
        assert done.ok, done.output
        assert '"status": "same"' in done.output
        assert "built from commit" in done.output
