from pathlib import Path

import pytest

from kbuild import package
from kbuild.errors import FileConflictError


def variant(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text('{"id": "_k_cpu_1"}')
    (folder / "__init__.py").write_text(content)
    return folder


def test_the_new_directory_replaces_the_old_one(tmp_path: Path) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")
    (target / "stale.py").write_text("gone after the next build")
    package.place(variant(tmp_path / "stage", "new"), target)
    assert sorted(path.name for path in target.iterdir()) == ["__init__.py", "metadata.json"]
    assert (target / "__init__.py").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["torch-cuda"]


def test_something_else_in_its_place_is_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "build" / "torch-cuda"
    target.mkdir(parents=True)
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(FileConflictError):
        package.place(variant(tmp_path / "stage", "new"), target)
    assert (target / "thesis.txt").read_text() == "years of work"


def test_a_crash_while_copying_leaves_the_good_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(package.shutil, "copytree", crash)
    with pytest.raises(KeyboardInterrupt):
        package.place(variant(tmp_path / "stage", "new"), target)
    assert (target / "__init__.py").read_text() == "old"


def test_a_crash_between_the_renames_is_undone(tmp_path: Path) -> None:
    target = tmp_path / "build" / "torch-cuda"
    variant(tmp_path / "build" / ".torch-cuda.old", "old")
    package.recover(target)
    assert (target / "__init__.py").read_text() == "old"
