"""One set of rules for all kinds of entries: damage, races, ownership, full disks, age and size.

A kind of each form stands for the others: a file, a folder, and a file of a project.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path

import pytest

from kbuild.system import cache as module
from kbuild.system.atomic import draft_path
from kbuild.system.cache import BUILD_STATE, FACTS, HEADERS, OBJECTS, Cache, Kind
from kbuild.system.code_digest import PACKAGE

ALL = pytest.mark.parametrize("kind", [FACTS, HEADERS, BUILD_STATE], ids=lambda kind: kind.name)
KEY, OTHER = "ab" * 16, "ab" + "cd" * 15
PARTS = (b"first\n", b"", bytes(range(256)))


@pytest.fixture
def reported() -> Iterator[list[str]]:
    """What is reported of entries that are damaged or cannot be written."""
    texts: list[str] = []
    module.report_trouble_to(texts.append)
    yield texts
    module.report_trouble_to(None)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@ALL
def test_an_entry_comes_back(tmp_path: Path, kind: Kind) -> None:
    cache = Cache(tmp_path, kind)
    assert cache.get(KEY) is None
    assert cache.put(KEY, *PARTS)
    assert cache.get(KEY) == list(PARTS)
    assert cache.first_part(KEY) == PARTS[0]
    assert cache.put_json(KEY, {"a": [1, None]})
    assert cache.get_json(KEY, dict) == {"a": [1, None]}
    cache.remove(KEY)
    assert cache.get(KEY) is None


@ALL
def test_without_a_folder_nothing_is_kept(kind: Kind) -> None:
    cache = Cache(None, kind)
    assert not cache.put(KEY, b"x")
    assert cache.get(KEY) is None


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])


def move_bytes_between_parts(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b" 6 0 256\n", b" 5 1 256\n"))


def replace_by_another_entry(path: Path) -> None:
    others = (*path.parent.glob("*-other"), *path.parent.parent.glob("*-other/record"))
    shutil.copy(others[0], path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\0\xff garbage"),
    "a header alone": lambda path: path.write_bytes(path.read_bytes().partition(b"\n")[0]),
    "a header without lengths": lambda path: path.write_bytes(b"kbuild-entry x 1\n"),
    "truncated": truncate,
    "a flipped bit": flip_a_bit,
    "other parts": move_bytes_between_parts,
    "another entry": replace_by_another_entry,
    "a folder": replace_by_folder,
    "a pipe": replace_by_pipe,
}


@ALL
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_none(tmp_path: Path, kind: Kind, damage, reported: list[str]) -> None:
    cache = Cache(tmp_path, kind)
    for key in (KEY, f"{KEY}-other"):
        cache.put(key, *PARTS)
    path = Path(cache.file(KEY))
    damage(path)
    assert cache.get(KEY) is None
    assert cache.get(KEY) is None
    assert ["damaged entry" in text and kind.name in text for text in reported] == [True]
    if not kind.in_project:
        assert not path.exists()
    elif path.is_dir():
        shutil.rmtree(path)
    assert cache.put(KEY, *PARTS)
    assert cache.get(KEY) == list(PARTS)


@ALL
def test_an_entry_of_another_version_is_none(
    tmp_path: Path, kind: Kind, reported: list[str]
) -> None:
    newer = copy(kind)
    newer.version += 1
    Cache(tmp_path, kind).put(KEY, b"old")
    assert Cache(tmp_path, newer).get(KEY) is None
    assert Cache(tmp_path, newer).first_part(KEY) is None
    Cache(tmp_path, newer).put(KEY, b"new")
    assert Cache(tmp_path, newer).get(KEY) == [b"new"]
    assert reported == []


RACE = """
import sys
from kbuild.system.cache import Cache
from kbuild.system.cache import KINDS, PROJECT_KINDS
kind = next(kind for kind in (*KINDS, *PROJECT_KINDS) if kind.name == sys.argv[2])
cache, own = Cache(sys.argv[1], kind), sys.argv[3].encode() * 5000
for _ in range(200):
    cache.put("abcd", own, own)
    parts = cache.get("abcd")
    assert parts is None or (parts[0] == parts[1] and len(parts[0]) == 5000), parts
    cache.remove("abcd")
"""


@ALL
def test_two_processes_put_get_and_remove_at_once(tmp_path: Path, kind: Kind) -> None:
    words = [sys.executable, "-c", RACE, str(tmp_path), kind.name]
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    running = [subprocess.Popen([*words, letter], env=environ) for letter in "ab"]  # noqa: TID251
    assert [process.wait(60) for process in running] == [0, 0]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_an_interrupted_removal_left_does_not_stop_the_next(tmp_path: Path) -> None:
    cache = Cache(tmp_path, HEADERS)
    cache.put(KEY, b"x")
    left = Path(draft_path(cache.path(KEY)))
    left.mkdir()
    (left / "record").touch()
    cache.remove(KEY)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_that_a_writer_adds_during_a_removal_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, HEADERS)
    cache.put(KEY, b"x")
    real, calls = os.rmdir, []

    def rmdir(path, **options) -> None:
        if not calls:
            calls.append(path)
            (Path(draft_path(cache.path(KEY))) / "late").touch()
        real(path, **options)

    monkeypatch.setattr(os, "rmdir", rmdir)
    cache.remove(KEY)
    assert calls
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", [FACTS, HEADERS], ids=lambda kind: kind.name)
def test_an_entry_of_another_user_is_not_trusted(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch, reported: list[str]
) -> None:
    cache = Cache(tmp_path, kind)
    cache.put(KEY, b"x")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    if os.getuid() == 0:
        assert cache.get(KEY) == [b"x"]  # root is trusted
        os.chown(cache.file(KEY), 4_000_001, -1)
    monkeypatch.setenv("KBUILD_SHARED_CACHE", "1")
    assert cache.get(KEY) == [b"x"]
    monkeypatch.delenv("KBUILD_SHARED_CACHE")
    assert cache.get(KEY) is None
    assert "belongs to another user" in reported[0]


@ALL
def test_a_full_disk_costs_nothing_but_time(
    tmp_path: Path, kind: Kind, reported: list[str]
) -> None:
    cache = Cache(tmp_path, kind)
    cache.put(KEY, b"old")
    with full_disk():
        assert [cache.put(key, b"new" * 100_000) for key in (KEY, OTHER)] == [False, False]
    assert (cache.get(KEY), cache.get(OTHER)) == ([b"old"], None)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    assert len(reported) == 1
    assert "cannot be written: File too large" in reported[0]


def test_a_use_changes_no_file_of_a_project(tmp_path: Path) -> None:
    """A record of an unchanged build has their times."""
    cache = Cache(tmp_path, BUILD_STATE)
    cache.put(KEY, b"x")
    os.utime(cache.path(KEY), (1e9, 1e9))
    cache.get(KEY)
    assert Path(cache.path(KEY)).stat().st_mtime == 1e9


def test_entries_of_a_group(tmp_path: Path) -> None:
    cache = Cache(tmp_path, OBJECTS)
    assert cache.newest(KEY) == []
    for age, name in enumerate(("new", "older", "oldest")):
        cache.put(f"{KEY}/{name}", b"x")
        os.utime(cache.path(f"{KEY}/{name}"), (1e9 - age, 1e9 - age))
    Path(cache.path(f"{KEY}/oldest.12.draft")).touch()
    assert cache.newest(KEY) == [f"{KEY}/new", f"{KEY}/older", f"{KEY}/oldest"]
    assert len(list(cache.entries())) == 3


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    first, second = (Cache(tmp_path, OBJECTS).lock(KEY) for _ in range(2))
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    second.wait()
    assert first.try_acquire()


def test_it_imports_next_to_nothing() -> None:
    """Every compiler launcher does."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import kbuild.system.cache"
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"pathlib", "json", "re", "contextlib", "dataclasses", "typing", "hashlib", "threading"}
    assert not heavy & set(done.stdout.split())
