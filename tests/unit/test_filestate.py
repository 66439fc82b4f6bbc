"""A file's identity: its status, and what it holds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from kbuild.build.state import BuildState, read_state
from kbuild.filestate import (
    NEVER,
    clock,
    copied,
    has_moved,
    identify,
    is_same,
    is_young,
    lasting,
    look,
    looks,
    unchanged,
)  # fmt: skip


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
    assert not is_same(file, then)
    assert not unchanged("/", {str(file): then})


def test_a_file_that_holds_the_same_is_the_same(file: Path) -> None:
    then = identify(file)
    file.touch()
    assert is_same(file, then)
    file.unlink()
    file.write_text("one\n")
    assert is_same(file, then)
    assert not is_same(file, look(file / "none"))
    file.unlink()
    assert not is_same(file, then)
    assert is_same(file, None)


def test_without_a_hash_the_status_decides(file: Path) -> None:
    then = look(file)
    assert is_same(file, then)
    os.utime(file, (1, 1))
    assert not is_same(file, then)
    assert not is_same(file, NEVER)


def test_a_folder_is_what_comes_and_goes_in_it(tmp_path: Path) -> None:
    then = look(tmp_path)
    assert identify(tmp_path) == then
    tmp_path.chmod(0o700)
    assert is_same(tmp_path, then)
    time.sleep(0.02)
    (tmp_path / "new").touch()
    assert not is_same(tmp_path, then)


def test_of_a_young_file_the_hash_is_kept(file: Path) -> None:
    identity, now = identify(file), clock()
    assert not is_young(identity, now)
    assert lasting(identity, now) == identity
    file.write_text("two\n")
    young = identify(file)
    assert is_young(young, now)
    kept = lasting(young, now)
    assert kept is not None
    assert kept[:4] == (4, 0, 0, 0)
    assert is_same(file, kept)
    keep_time(file, "six\n")
    assert not is_same(file, kept)


def test_whole_seconds_tell_less() -> None:
    second = 1_000_000_000
    assert is_young((1, 99 * second, 99 * second, 1, ""), 100 * second + 5)
    assert not is_young((1, 99 * second + 1, 99 * second + 1, 1, ""), 100 * second + 5)
    assert not is_young((1, 97 * second, 97 * second, 1, ""), 100 * second + 5)
    assert is_young(None, 0)


def test_a_file_that_is_put_back_has_moved(file: Path) -> None:
    since, then = clock(), identify(file)
    assert not has_moved(file, then, since)
    file.chmod(0o600)
    assert not has_moved(file, then, since)
    time.sleep(0.02)
    file.write_text("two\n")
    file.write_text("one\n")
    assert has_moved(file, then, since)


def test_a_copy_has_the_identity_of_its_bytes(file: Path, tmp_path: Path) -> None:
    identity = copied(file, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "one\n"
    assert identity == identify(file)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    identity = identify(tmp_path / "pipe")
    assert identity is not None
    assert identity[4] == ""


def test_looks_are_json(file: Path) -> None:
    observed = {"file": identify(file), "none": None}
    assert looks(json.loads(json.dumps(observed))) == observed
    with pytest.raises(TypeError):
        looks({"file": [1, 2]})


def test_the_record_of_a_build(file: Path, tmp_path: Path) -> None:
    inputs = {"file": identify(file), "front/file": None}
    state = BuildState("plan", "kbuild", "out", inputs, {})
    state.write(tmp_path / "state.json")
    assert read_state(tmp_path / "state.json") == state
    (tmp_path / "state.json").write_text('{"format": 1, "inputs": {"file": [4, 1]}}')
    assert read_state(tmp_path / "state.json") is None
