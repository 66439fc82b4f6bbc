"""`kbuild cache`: what a cache folder holds, and what pruning removes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbuild.system.cache import FACTS, HEADERS, IMAGES, OBJECTS, Cache, Kind
from kbuild.system.store import open_store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an old and a new entry in each of three kinds."""
    root = tmp_path / "own"
    for kind in (OBJECTS, IMAGES, HEADERS):
        cache = Cache(root, kind)
        for age, key in enumerate(("aabb-new", "aabb-old")):
            cache.put(key, bytes(1 << 20))
            os.utime(cache.file(key), (time.time() - 1000 * age,) * 2)
    Cache(root, FACTS).put("aabb", b"fact")
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(root))
    return root


def keys(folder: Path, kind: Kind) -> list[str]:
    return sorted(entry.key for entry in Cache(folder, kind).entries())


def test_the_content_of_this_machine(kbuild: Callable[..., Any], folder: Path) -> None:
    shown = kbuild("cache", "--json").json
    assert shown["cache"] == str(folder)
    assert {kind: entry["files"] for kind, entry in shown["kinds"].items()} == {
        "objects": 2,
        "images of DSL kernels": 2,
        "precompiled headers": 2,
        "answers and facts": 1,
    }
    assert shown["kinds"]["objects"]["size"] > 2 << 20
    assert kbuild("cache").out.splitlines()[1].split()[-1] == "MB"


def test_pruning_this_machine(kbuild: Callable[..., Any], folder: Path) -> None:
    planned = kbuild("cache", "prune", "--size", "2.5M", "--dry-run")
    assert "2.1 MB of objects and images, 0.0 MB of precompiled headers" in planned.err
    assert len(keys(folder, OBJECTS)) == 2
    done = kbuild("cache", "prune", "--size", "2.5M", "--json").json
    assert (done["objects"] > 2 << 20, done["headers"]) == (True, 0)
    assert (done["removed"], done["dry_run"]) == ([], False)
    assert (keys(folder, OBJECTS), keys(folder, IMAGES)) == (["aabb-new"], ["aabb-new"])
    assert kbuild("cache", "prune", "--days", "-1").code == 2


def test_nothing_is_removed_while_a_command_uses_toolchains(
    kbuild: Callable[..., Any], folder: Path
) -> None:
    with open_store(folder).in_use():
        refused = kbuild("cache", "prune", "--size", "2.5M")
    assert (refused.code, "nothing was removed" in refused.err) == (4, True)
    assert len(keys(folder, OBJECTS)) == 2


def test_pruning_precompiled_headers(
    kbuild: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBUILD_PRECOMPILED_HEADERS", "2M")
    assert kbuild("cache", "prune", "--dry-run", "--json").json["headers"] > 1 << 20
    assert kbuild("cache", "prune", "--json").json["headers"] > 1 << 20
    assert keys(folder, HEADERS) == ["aabb-new"]
    monkeypatch.setenv("KBUILD_PRECOMPILED_HEADERS", "much")
    assert kbuild("cache", "prune").code == 2
