"""Folders that change places, and what is synced, in which order."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbuild.system import files
from kbuild.system.files import exchange_paths, replace_atomically, sync, sync_tree


def without_exchange(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    """A C library whose kernel refuses with that error; without one, an old C library."""

    def refuse(*_: object) -> int:
        assert number is not None
        ctypes.set_errno(number)
        return -1

    names = () if number is None else ("renameat2", "renamex_np")
    libc = SimpleNamespace(**dict.fromkeys(names, refuse))
    monkeypatch.setattr(files, "_libc", lambda: libc)


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


@pytest.mark.parametrize("number", [None, errno.ENOSYS, errno.EINVAL, errno.EPERM])
def test_who_cannot_exchange_says_so_and_changes_nothing(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    without_exchange(monkeypatch, number)
    assert not exchange_paths(*pair)
    assert [(path / "file").read_text() for path in pair] == ["one", "other"]


def test_a_refusal_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.sys, "platform", "linux")
    without_exchange(monkeypatch, errno.EACCES)
    with pytest.raises(PermissionError) as caught:
        exchange_paths(tmp_path / "one", tmp_path / "other")
    assert caught.value.filename == str(tmp_path / "one")


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


@pytest.mark.parametrize("status", [0, -1])
def test_a_large_tree_is_synced_with_its_file_system_where_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[int], status: int
) -> None:
    for number in range(files._FEW):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(files.sys, "platform", "linux")
    monkeypatch.setattr(files, "_libc", lambda: SimpleNamespace(syncfs=lambda _: status))
    sync_tree(tmp_path)
    assert len(synced) == (files._FEW + 1 if status else 0)


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
