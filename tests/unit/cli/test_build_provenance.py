"""`kbuild build --provenance` of a Python-only project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.git_repository import commit, git

pytestmark = pytest.mark.full


BUILD = ("build", "demo", "--variant", "torch-cuda", "--provenance")


@pytest.fixture
def committed(demo: Path) -> Path:
    git(demo, "init", "-q")
    (demo / ".gitignore").write_text("build/\n.kbuild/\n")
    commit(demo)
    return demo


@pytest.fixture
def statement(committed: Path) -> Path:
    return committed / "build" / "torch-cuda.intoto.json"


def source(statement: Path) -> dict:
    document = json.loads(statement.read_text())
    listed = document["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [entry["name"] for entry in listed[1:]] == [
        "source/build.toml",
        "source/torch-ext/demo/__init__.py",
    ]
    return listed[0]


@pytest.mark.quick
def test_the_commit_is_told(kbuild, committed, statement):
    answer = kbuild(*BUILD)
    assert answer.code == 0, answer.err
    assert "wrote torch-cuda.intoto.json" in answer.err
    told = source(statement)
    assert told["digest"] == {"gitCommit": git(committed, "rev-parse", "HEAD")}
    assert told["annotations"] == {"dirty": False, "notInTheCommit": []}


def test_a_source_that_nobody_added(kbuild, committed, statement):
    git(committed, "rm", "-q", "--cached", "torch-ext/demo/__init__.py")
    git(committed, "commit", "-qm", "forgotten")
    assert kbuild(*BUILD).code == 0
    assert source(statement)["annotations"] == {
        "dirty": True,
        "notInTheCommit": ["torch-ext/demo/__init__.py"],
    }
    metadata = json.loads((committed / "build" / "torch-cuda" / "metadata.json").read_text())
    assert metadata["provenance"]["kernel"]["dirty"] is True
    assert metadata["id"].endswith("_dirty")


def test_another_build_takes_it_away(kbuild, committed, statement):
    kbuild(*BUILD)
    assert kbuild("build", "demo", "--variant", "torch-cuda").code == 0
    assert statement.exists()  # about the same files
    (committed / "torch-ext" / "demo" / "__init__.py").write_text('"""Demo."""\n\n__all__ = []\n')
    answer = kbuild("build", "demo", "--variant", "torch-cuda")
    assert "removed torch-cuda.intoto.json, torch-cuda.cdx.json of an older build" in answer.err
    assert not statement.exists()


def test_the_date(kbuild, committed, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert kbuild(*BUILD).code == 0
    bom = json.loads((committed / "build" / "torch-cuda.cdx.json").read_text())
    assert bom["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    answer = kbuild(*BUILD)
    assert (answer.code, "SOURCE_DATE_EPOCH is `yesterday`" in answer.err) == (2, True)


def test_without_git(kbuild, demo):
    assert kbuild(*BUILD).code == 0
    listed = json.loads((demo / "build" / "torch-cuda.intoto.json").read_text())
    names = listed["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [entry["name"] for entry in names] == [
        "source/build.toml",
        "source/torch-ext/demo/__init__.py",
    ]
