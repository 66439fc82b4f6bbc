"""Sweeping: what is too old, too many or too large goes, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbuild.system import cache_sweep
from kbuild.system.cache import HEADERS, IMAGES, KINDS, OBJECTS, PROBE_ANSWERS, Cache, Kind

ALL = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
LIMITED = pytest.mark.parametrize("kind", [OBJECTS, IMAGES, HEADERS], ids=lambda kind: kind.name)
DAY = 86400


def put(folder: Path, kind: Kind, key: str, *, days: float = 0, size: int = 100) -> None:
    """An entry that was last used so many days ago."""
    cache = Cache(folder, kind)
    cache.put(key, bytes(size))
    age(Path(cache.file(key)), days)


def age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * DAY,) * 2)


def keys(folder: Path, kind: Kind) -> list[str]:
    return sorted(entry.key for entry in Cache(folder, kind).entries())


@ALL
def test_old_entries_go_where_no_limit_keeps_them_small(tmp_path: Path, kind: Kind) -> None:
    put(tmp_path, kind, "aa-new", days=80)
    put(tmp_path, kind, "aa-old", days=100)
    cache_sweep.sweep(tmp_path, {})
    assert keys(tmp_path, kind) == (["aa-new", "aa-old"] if kind.limit else ["aa-new"])


def test_the_last_used_ones_of_many_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROBE_ANSWERS, "max_entries", 2)
    for days in range(4):
        put(tmp_path, PROBE_ANSWERS, f"aa-{days}", days=days)
    cache_sweep.sweep(tmp_path, {})
    assert keys(tmp_path, PROBE_ANSWERS) == ["aa-0", "aa-1"]


@LIMITED
def test_the_last_used_ones_stay_within_a_limit(tmp_path: Path, kind: Kind) -> None:
    for days in range(4):
        put(tmp_path, kind, f"aa-{days}", days=days, size=10_000)
    size = sum(entry.size for entry in Cache(tmp_path, kind).entries())
    assert cache_sweep.sweep(tmp_path, {kind.limit: size}) == {"objects": 0, "headers": 0, "": 0}
    limits = {kind.limit: int(size * 0.8)}
    assert cache_sweep.sweep(tmp_path, limits, dry_run=True)[kind.limit] == size // 2
    assert len(keys(tmp_path, kind)) == 4
    assert cache_sweep.sweep(tmp_path, limits)[kind.limit] == size // 2
    assert keys(tmp_path, kind) == ["aa-0", "aa-1"]


def test_objects_and_images_have_one_limit(tmp_path: Path) -> None:
    put(tmp_path, OBJECTS, "aabb", days=2, size=10_000)
    put(tmp_path, IMAGES, "aabb", days=1, size=10_000)
    cache_sweep.sweep(tmp_path, {OBJECTS.limit: 15_000})
    assert (keys(tmp_path, OBJECTS), keys(tmp_path, IMAGES)) == ([], ["aabb"])


@ALL
def test_leftovers_of_killed_writers_go(tmp_path: Path, kind: Kind) -> None:
    cache = Cache(tmp_path, kind)
    for name in ("now", "old"):
        file, folder = Path(f"{cache.path(name)}.1-2.draft"), Path(f"{cache.path(name)}.1-3.draft")
        folder.mkdir(parents=True)
        for path in (folder / "file", file):
            path.touch()
        if name == "old":
            for path in (file, folder):
                age(path, 1)
    cache_sweep.sweep(tmp_path, {})
    left = {path.name.partition(".")[0] for path in tmp_path.rglob("*.draft")}
    assert left == {"w"}
    assert list(cache.entries()) == []


def test_empty_folders_and_old_locks_go(tmp_path: Path) -> None:
    (tmp_path / "objects/aa/bb").mkdir(parents=True)
    for folder in (tmp_path / "objects/aa/bb", tmp_path / "objects/aa"):
        age(folder, 1)
    for key, days in (("aa-new", 1), ("aa-old", 100)):
        lock = Cache(tmp_path, OBJECTS).lock(key)
        lock.try_acquire()
        age(Path(tmp_path, "locks", key[:2], key[2:]), days)
    cache_sweep.sweep(tmp_path, {})
    assert [path.name for path in (tmp_path / "locks").glob("*/*")] == ["-new"]
    assert not (tmp_path / "objects/aa/bb").exists()


def test_a_sweep_is_not_repeated_at_once(tmp_path: Path) -> None:
    stamp = tmp_path / "locks" / "swept"

    def is_swept(days: float | None) -> bool:
        put(tmp_path, IMAGES, "aabb")
        if days is not None:
            age(stamp, days)
        cache_sweep.sweep_if_due(tmp_path, {IMAGES.limit: 1})
        return keys(tmp_path, IMAGES) == []

    assert is_swept(None)
    assert not is_swept(0.001)
    assert is_swept(1)
    assert is_swept(-1)  # a clock that was set back


def test_no_cache_is_made_to_be_swept(tmp_path: Path) -> None:
    cache_sweep.sweep_if_due(tmp_path / "none", {})
    assert not (tmp_path / "none").exists()
