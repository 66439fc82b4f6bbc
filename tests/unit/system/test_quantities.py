from __future__ import annotations

import pytest

from kbuild.system.cache_sweep import cache_size_limit, is_cache_enabled
from kbuild.system.errors import UsageError
from kbuild.system.quantities import parse_duration, parse_memory


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("1.5G", 1536),
        ("4096M", 4096),
        ("24 GiB", 24576),
        ("1t", 1 << 20),
        ("2048k", 2),
        ("3GB", 3072),
    ],
)
def test_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "12", "G", "-1G", "1.5.2G", "4096", "0G", "1X", "100K"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(UsageError, match=r"--memory: .*is not an amount of memory") as caught:
        parse_memory(text)
    assert caught.value.hint == "write it like 4096M or 1.5G"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5h45m", 20700), ("90m", 5400), ("1d", 86400), ("30s", 30), ("1H30M", 5400), (" 2h ", 7200)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "0h", "45m5h", "1.5h", "h", "-1h", "5 h 3 x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"--time-budget: .*is not a duration"):
        parse_duration(text)


def test_the_caches_switches() -> None:
    assert cache_size_limit({}) == 5 << 30
    assert cache_size_limit({"KBUILD_CACHE_SIZE": "200M"}) == 200 << 20
    with pytest.raises(UsageError, match="KBUILD_CACHE_SIZE"):
        cache_size_limit({"KBUILD_CACHE_SIZE": "much"})
    assert is_cache_enabled({})
    assert not is_cache_enabled({"KBUILD_CACHE": "off"})
