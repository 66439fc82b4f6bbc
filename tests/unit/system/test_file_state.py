"""A file's identity: its status, and what it holds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbuild.system.file_state import (
    all_unchanged,
    file_clock,
    has_changed_since,
    identify,
    is_unchanged,
    may_have_changed_since,
    stat_state,
    storable_state,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("one\n")
    time.sleep(0.02)  # a tick of the clock that files are dated by
    return path


def keep_time(path: Path, text: str) -> None:
    """Other content of the same size, with the same mtime."""
    status = path.stat()
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_file_with_a_kept_time_is_another_one(file: Path) -> None:
    then = identify(file)
    keep_time(file, "two\n")
    assert not is_unchanged(file, then)
    assert not all_unchanged("/", {str(file): then})


def test_a_file_that_holds_the_same_is_the_same(file: Path) -> None:
    then = identify(file)
    file.touch()
    assert is_unchanged(file, then)
    file.unlink()
    file.write_text("one\n")
    assert is_unchanged(file, then)
    assert not is_unchanged(file, stat_state(file / "none"))
    file.unlink()
    assert not is_unchanged(file, then)
    assert is_unchanged(file, None)


def test_without_a_hash_the_status_decides(file: Path) -> None:
    then = stat_state(file)
    assert is_unchanged(file, then)
    os.utime(file, (1, 1))
    assert not is_unchanged(file, then)


def test_a_folder_is_what_comes_and_goes_in_it(tmp_path: Path) -> None:
    then = stat_state(tmp_path)
    assert identify(tmp_path) == then
    tmp_path.chmod(0o700)
    assert is_unchanged(tmp_path, then)
    time.sleep(0.02)
    (tmp_path / "new").touch()
    assert not is_unchanged(tmp_path, then)


def test_of_a_young_file_the_hash_is_kept(file: Path) -> None:
    identity, now = identify(file), file_clock()
    assert not may_have_changed_since(identity, now)
    assert storable_state(identity, now) == identity
    file.write_text("two\n")
    young = identify(file)
    assert may_have_changed_since(young, now)
    kept = storable_state(young, now)
    assert kept is not None
    assert kept[:4] == (4, 0, 0, 0)
    assert is_unchanged(file, kept)
    keep_time(file, "six\n")
    assert not is_unchanged(file, kept)


def test_a_file_that_is_put_back_has_moved(file: Path) -> None:
    since, then = file_clock(), identify(file)
    assert not has_changed_since(file, then, since)
    file.chmod(0o600)
    assert not has_changed_since(file, then, since)
    time.sleep(0.02)
    file.write_text("two\n")
    file.write_text("one\n")
    assert has_changed_since(file, then, since)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    identity = identify(tmp_path / "pipe")
    assert identity is not None
    assert identity[4] == ""
