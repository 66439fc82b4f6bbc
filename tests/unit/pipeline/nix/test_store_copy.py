"""Copies of store paths: they are kept while they are the copies that this kbuild made."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.pipeline.nix.store_copy import is_current_copy, record_copy
from kbuild.system.workspace import Workspace

OUTPUT = "/nix/store/x"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "build" / "torch-cuda"
    target.mkdir(parents=True)
    (target / "__init__.py").write_text("one = 1\n")
    record_copy(Workspace(tmp_path, "torch-cuda"), OUTPUT, target, "off")
    return target


def holds(target: Path, output: str = OUTPUT) -> bool:
    return is_current_copy(Workspace(target.parents[1], "torch-cuda"), output, target)


def test_it_is_as_it_was(target: Path) -> None:
    assert holds(target)
    assert not holds(target, "/nix/store/y")


@pytest.mark.parametrize("name", ["__init__.py", "more.py"])
def test_an_edited_copy_is_none(target: Path, name: str) -> None:
    (target / name).write_text("one = 2\n")
    assert not holds(target)


def test_another_kbuild_copies_anew(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbuild.system.record.package_digest", lambda _: "another")
    assert not holds(target)
