"""An answer is given again while all that it follows from is as it was, and no longer."""

from __future__ import annotations

import pytest

from kbuild.system.cache import UNCHANGED_BUILD, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import identify, stat_state
from kbuild.system.record import Record, read_record


@pytest.fixture
def root(tmp_path):
    (tmp_path / "inside").write_text("one")
    (tmp_path / "outside").write_text("one")
    return tmp_path


@pytest.fixture
def record(root):
    observed = {
        "inside": identify(root / "inside"),
        str(root / "outside"): stat_state(root / "outside"),
        "absent": None,
    }
    Record({"answer": 42}, observed, package_digest()).write(Cache(root, UNCHANGED_BUILD))
    return read_record(Cache(root, UNCHANGED_BUILD))


def test_an_answer_comes_back(root, record):
    assert record.answer == {"answer": 42}
    assert record.holds(root, root / "cache")


@pytest.mark.parametrize("name", ["inside", "outside", "absent"])
def test_a_change_ends_it(root, record, name):
    (root / name).write_text("another")
    assert not record.holds(root, root / "cache")


def test_another_kbuild_ends_it(root, record, monkeypatch):
    monkeypatch.setattr("kbuild.system.record.package_digest", lambda _: "another")
    assert not record.holds(root, root / "cache")


@pytest.mark.parametrize(
    "change",
    [
        {"answer": []},
        {"observed": 3},
        {"until": "a"},
        *({"observed": {"a": state}} for state in (1, [1], "a", [float("inf"), 1, 1, 1, ""])),
    ],
)
def test_one_of_another_shape_is_none(root, record, change):
    """A project, and so its records, may come from anybody."""
    cache = Cache(root, UNCHANGED_BUILD)
    cache.put_json("", {**vars(record), **change})
    assert read_record(cache, parse=lambda answer: answer["answer"]) is None
