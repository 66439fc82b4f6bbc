"""Folders that change places, and what is synced, in which order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kbuild.system import files
from kbuild.system.files import exchange_paths, replace_atomically, sync, sync_tree


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path / "one", tmp_path / "other"


def test_two_folders_change_places(pair: tuple[Path, Path]) -> None:
    changed = exchange_paths(*pair)
    texts = [(path / "file").read_text() for path in pair]
    assert texts == (["other", "one"] if changed else ["one", "other"])


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Inodes in the order in which they are synced."""
    inodes: list[int] = []
    monkeypatch.setattr(files.os, "fsync", lambda handle: inodes.append(os.fstat(handle).st_ino))
    return inodes


def test_a_tree_is_synced_from_the_leaves_up(tmp_path: Path, synced: list[int]) -> None:
    (tmp_path / "below").mkdir()
    paths = [tmp_path / "below" / "file", tmp_path / "below", tmp_path]
    paths[0].touch()
    (tmp_path / "below" / "link").symlink_to("nowhere")
    sync_tree(tmp_path)
    assert synced == [path.stat().st_ino for path in paths]


def test_a_disk_that_loses_data_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(_: int) -> None:
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(files.os, "fsync", lose)
    with pytest.raises(OSError, match="lost"):
        sync(tmp_path)


def test_a_durable_file_is_on_the_disk_before_its_name_and_its_name_before_the_end(
    tmp_path: Path, synced: list[int]
) -> None:
    target = tmp_path / "lock.toml"
    replace_atomically(target, b"a cache")
    assert synced == []
    replace_atomically(target, b"precious", durable=True)
    assert synced == [target.stat().st_ino, tmp_path.stat().st_ino]
