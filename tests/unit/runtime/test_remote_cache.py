"""The shared cache fails, waits or lies: one warning, and the command goes on in time."""

from __future__ import annotations

import time

import pytest

from kbuild.errors import HubError, ToolchainError
from kbuild.runtime.remote_cache import RemoteCache
from tests.support.remote_caches import DictStore, stored


def test_what_one_stores_another_one_gets() -> None:
    store, warnings = DictStore(), []
    stored(store.cache(warnings.append), a=b"first", b=b"second" * 1000)
    reader = store.cache(warnings.append)
    requests = [reader.request(name) for name in ("a", "b", "c")]
    assert [reader.receive(request) for request in requests] == [b"first", b"second" * 1000, None]
    assert len(store.files["kbuild-1/b"]) < 1000
    assert not warnings


def test_a_reader_stores_nothing() -> None:
    store = DictStore()
    stored(store.cache(writes=False), a=b"first")
    assert not store.files


def test_a_store_that_is_down_is_asked_three_times() -> None:
    store, warnings = DictStore(is_down=True), []
    cache = store.cache(warnings.append)
    assert [cache.get(name) for name in "abcdef"] == [None] * 6
    assert store.reads == ["kbuild-1/a", "kbuild-1/b", "kbuild-1/c"]
    assert not cache.is_asked
    (warning,) = warnings
    assert warning.startswith("the shared cache dict://cache (KBUILD_REMOTE_CACHE): connection")


def test_a_store_without_space_is_still_read() -> None:
    store, warnings = DictStore(), []
    stored(store.cache(warnings.append), a=b"first")
    store.is_full = True
    cache = store.cache(warnings.append)
    stored(cache, b=b"second", c=b"third")
    assert cache.get("a") == b"first"
    assert len(warnings) == 1
    assert "nothing can be stored in it: no space is left" in warnings[0]


def test_damaged_entries_are_refused_with_one_warning() -> None:
    store, warnings = DictStore(), []
    stored(store.cache(warnings.append), a=b"first", b=b"second", c=b"third")
    store.files["kbuild-1/a"] = store.files["kbuild-1/a"][:-1]
    store.files["kbuild-1/b"] = store.files["kbuild-1/c"]
    cache = store.cache(warnings.append)
    assert [cache.get(name) for name in "abc"] == [None, None, b"third"]
    assert len(warnings) == 1
    assert "damaged entry, which is not used" in warnings[0]


def test_without_the_secret_nothing_is_believed() -> None:
    store, warnings = DictStore(), []
    stored(store.cache(warnings.append), a=b"forged")
    assert store.cache(warnings.append, secret=b"s" * 16).get("a") is None
    assert "not signed" in warnings[0]


def test_a_slow_store_costs_the_allowance_and_no_more() -> None:
    store, warnings = DictStore(delay=0.2), []
    cache = store.cache(warnings.append, allowance=0.5)
    began = time.monotonic()
    for name in "abcdefghij":
        cache.get(name)
        cache.count(hit=False)
    assert time.monotonic() - began < 1.5
    assert not cache.is_asked
    assert len(store.reads) < 5
    (warning,) = warnings
    assert "took 0." in warning
    assert "of compiling" in warning


def test_a_slow_store_that_saves_more_is_asked_on() -> None:
    store = DictStore()
    stored(store.cache(), **dict.fromkeys("abcdef", b"content"))
    store.delay = 0.1
    cache = store.cache(allowance=0.2)
    for name in "abcdef":
        assert cache.get(name) == b"content"
        cache.count(hit=True, received=7, saved=0.5)
    assert cache.is_asked
    assert cache.statistics.saved == pytest.approx(3.0)
    assert "6 of 6 entries" in cache.summary


def test_an_entry_cannot_buy_time_without_end() -> None:
    cache = DictStore().cache()
    for seconds in (float("inf"), float("nan"), -1.0, 1e9):
        cache.count(hit=True, saved=seconds)
    assert cache.statistics.saved == 0


def test_a_store_that_hangs_holds_nobody_up() -> None:
    store, warnings = DictStore(delay=60), []
    cache = store.cache(warnings.append, allowance=0.3)
    began = time.monotonic()
    assert cache.get("a") is None
    cache.put(lambda: [("b", b"content")])
    cache.finish(0.2)
    assert time.monotonic() - began < 5
    assert len(warnings) == 2
    assert "saved 0.0 s of compiling" in warnings[0]
    assert "1 new entries were not sent" in warnings[1]


def test_requests_that_take_too_long_count_as_failures() -> None:
    store, warnings = DictStore(delay=60), []
    cache = store.cache(warnings.append, request_seconds=0.05)
    assert [cache.get(name) for name in "abcd"] == [None] * 4
    assert not cache.is_asked
    assert len(warnings) == 1
    assert "did not answer in time" in warnings[0]


def test_a_missing_driver_is_an_error_and_no_connection_is_not() -> None:
    def no_driver() -> DictStore:
        raise ToolchainError("it needs a driver")

    def no_connection() -> DictStore:
        raise HubError("no route to host")

    with pytest.raises(ToolchainError, match="driver"):
        RemoteCache(no_driver, "x", print).connect()
    warnings: list[str] = []
    cache = RemoteCache(no_connection, "x", warnings.append)
    cache.connect()
    assert cache.get("a") is None
    stored(cache, a=b"content")
    assert len(warnings) == 1
