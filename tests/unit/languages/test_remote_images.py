"""Images of kernels in DSLs come from another machine's cache, and go there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.fake_dsl import Kernel, Shop, shop, unit
from tests.support.remote_caches import DictStore


def with_remote(bench: Shop, store: DictStore, warnings: list[str]) -> Shop:
    remote = store.cache(warnings.append)
    cache = bench.workshop._cache
    bench.workshop._cache = replace(cache, remote=remote)
    return bench


def test_another_machine_starts_no_worker(tmp_path: Path) -> None:
    store, warnings = DictStore(), []
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with shop(tmp_path / "a") as bench:
        with_remote(bench, store, warnings).write(log="")
        functions = bench.workshop.describe(Kernel(), bench.root)
        first = bench.compile(unit(1), unit(2))
        bench.workshop._cache.remote.finish()
    assert sorted(path.split("/")[1] for path in store.files) == ["described", "images", "images"]
    with shop(tmp_path / "b") as bench:
        with_remote(bench, store, warnings).write(log="")
        assert bench.workshop.describe(Kernel(), bench.root) == functions
        again = bench.compile(unit(1), unit(2))
        assert [one.code for one in again] == [one.code for one in first]
        assert bench.workshop._pool.count == 0
        statistics = bench.workshop._cache.remote.statistics
        assert (statistics.hits, statistics.misses) == (3, 0)
    assert not warnings


def test_damaged_images_are_compiled(tmp_path: Path) -> None:
    store, warnings = DictStore(), []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with shop(tmp_path / "a") as bench:
        with_remote(bench, store, warnings).write(log="")
        bench.compile(unit(1))
        bench.workshop._cache.remote.finish()
    for path in store.files:
        store.files[path] = store.files[path][:-3]
    with shop(tmp_path / "b") as bench:
        with_remote(bench, store, warnings).write(log="")
        assert len(bench.compile(unit(1))) == 1
        assert bench.workshop._pool.count == 1
    assert len(warnings) == 1
