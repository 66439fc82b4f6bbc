"""`kbuild cache`: what a cache folder holds, and what pruning removes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "own"
    for age, name in enumerate(("objects/aa/bb/new", "objects/aa/bb/old")):
        for suffix in (".o", ".err", ".d"):
            path = root / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(1 << 20 if suffix == ".o" else 0))
            os.utime(path, (time.time() - 1000 * age, time.time() - 1000 * age))
    (root / "facts").mkdir()
    (root / "facts" / "c++").write_bytes(bytes(10))
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(root))
    return root


def test_what_this_machine_keeps(kbuild: Callable[..., Any], cache: Path) -> None:
    shown = kbuild("cache", "--json").json
    assert shown["cache"] == str(cache)
    assert shown["kinds"]["objects and images"] == {"files": 6, "size": 2 << 20}
    assert shown["kinds"]["answers and facts"]["size"] >= 10
    assert kbuild("cache").out.splitlines()[1].startswith("objects and images")


def test_pruning_this_machine(kbuild: Callable[..., Any], cache: Path) -> None:
    planned = kbuild("cache", "prune", "--size", "1.5M", "--dry-run")
    assert "1.0 MB of objects, 0.0 MB of precompiled headers and 0 toolchains" in planned.err
    assert (cache / "objects/aa/bb/old.o").exists()
    assert kbuild("cache", "prune", "--size", "1.5M", "--json").json == {
        "objects": 1 << 20,
        "headers": 0,
        "removed": [],
        "dry_run": False,
    }
    assert sorted(path.name for path in cache.rglob("*.o")) == ["new.o"]
    assert kbuild("cache", "prune", "--days", "-1").code == 2


def test_pruning_precompiled_headers(
    kbuild: Callable[..., Any], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate(("new", "old")):
        folder = cache / "headers" / "aa" / name
        folder.mkdir(parents=True)
        (folder / "pre.h.gch").write_bytes(bytes(2 << 20))
        (folder / "record").touch()
        os.utime(folder / "record", (time.time() - 1000 * age,) * 2)
    left = cache / "headers" / "aa" / "bb.1.new"
    left.mkdir()
    os.utime(left, (time.time() - 7200,) * 2)
    shown = kbuild("cache", "--json").json
    assert shown["kinds"]["precompiled headers"] == {"files": 4, "size": 4 << 20}
    monkeypatch.setenv("KBUILD_PRECOMPILED_HEADERS", "3M")
    assert kbuild("cache", "prune", "--dry-run", "--json").json["headers"] == 2 << 20
    assert kbuild("cache", "prune", "--json").json["headers"] == 2 << 20
    assert [path.name for path in (cache / "headers" / "aa").iterdir()] == ["new"]
    monkeypatch.setenv("KBUILD_PRECOMPILED_HEADERS", "much")
    assert kbuild("cache", "prune").code == 2
