"""Sets of files, files that are replaced as a whole, and what is synced, in which order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kbuild.system import files
from kbuild.system.errors import FileConflictError
from kbuild.system.files import FileSet, exchange_paths, replace_atomically, sync, sync_tree


def test_a_second_write_touches_nothing(tmp_path: Path) -> None:
    files = FileSet({"b/c.txt": "two", "a.txt": "one"})
    assert files.write(tmp_path).written == ("a.txt", "b/c.txt")
    before = (tmp_path / "a.txt").stat().st_mtime_ns
    again = files.write(tmp_path)
    assert again.written == ()
    assert again.unchanged == ("a.txt", "b/c.txt")
    assert (tmp_path / "a.txt").stat().st_mtime_ns == before


def test_conflicts_are_all_found_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("mine")
    (tmp_path / "x").mkdir()
    files = FileSet({"a.txt": "1", "setup.py": "theirs", "x": "2"})
    with pytest.raises(FileConflictError) as caught:
        files.write(tmp_path)
    assert "setup.py" in str(caught.value)
    assert "\n    x" in str(caught.value)
    assert not (tmp_path / "a.txt").exists()


def test_an_edited_file_is_a_conflict_an_unedited_one_is_updated(tmp_path: Path) -> None:
    FileSet({"a": "1", "b": "1"}).write(tmp_path)
    FileSet({"a": "2", "b": "1"}).write(tmp_path)
    assert (tmp_path / "a").read_text() == "2"
    (tmp_path / "b").write_text("edited")
    with pytest.raises(FileConflictError, match="b"):
        FileSet({"a": "2", "b": "3"}).write(tmp_path)


def test_files_that_are_no_longer_generated_go_unless_edited(tmp_path: Path) -> None:
    FileSet({"old/one": "1", "old/two": "2", "kept": "3"}).write(tmp_path)
    (tmp_path / "old/two").write_text("edited")
    FileSet({"kept": "3"}).write(tmp_path)
    assert not (tmp_path / "old/one").exists()
    assert (tmp_path / "old/two").read_text() == "edited"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", "./a"])
def test_paths_stay_inside(path: str) -> None:
    with pytest.raises(ValueError, match="not a plain relative path"):
        FileSet({path: ""})


def test_what_a_killed_writer_left_is_used_up_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "facts.json"
    replace_atomically(target, b"old")
    (tmp_path / ".facts.json.draft").write_bytes(b"half of a very long text")
    replace_atomically(target, b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"facts.json": b"new"}


def test_a_draft_is_no_way_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".facts.json.draft").symlink_to("precious")
    replace_atomically(tmp_path / "facts.json", b"new")
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "facts.json").read_bytes() == b"new"


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "sub").symlink_to(outside)
    with pytest.raises(FileConflictError, match="leads out of"):
        FileSet({"sub/file": "x"}).write(root, force=True)
    assert list(outside.iterdir()) == []


def test_what_cannot_be_written_as_a_whole_is_not_begun(tmp_path: Path) -> None:
    root = tmp_path / "new"
    with pytest.raises(OSError, match="too long"):
        FileSet({"a": "", "b/c": "", "d/" + "x" * 300: ""}).write(root)
    assert not root.exists()
    root.mkdir()
    (root / "a").write_text("mine")
    with pytest.raises(OSError, match="too long"):
        FileSet({"a": "", "b/c": "", "x" * 300: ""}).write(root, force=True)
    assert [path.name for path in root.iterdir()] == ["a"]


def test_a_draft_that_has_become_the_target_meanwhile_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    target, draft, flock = tmp_path / "facts.json", tmp_path / ".facts.json.draft", fcntl.flock
    draft.write_bytes(b"theirs")
    seen = []

    def beaten(handle: int, how: int) -> None:
        draft.replace(target)
        seen.append(target.stat().st_ino)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", beaten)
    replace_atomically(target, b"ours")
    assert target.read_bytes() == b"ours"
    assert target.stat().st_ino not in seen
    assert len(seen) == 1


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
