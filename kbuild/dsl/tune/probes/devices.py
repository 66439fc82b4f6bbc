"""The devices that this process's Torch sees, and timers for calls on them."""

from __future__ import annotations

import importlib
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")

_CACHE = 64 << 20
"""Minimum of bytes that are read before each call."""
_MAX_CPU_CACHE = 512 << 20
"""Maximum of bytes that are read before each call on the processor."""
_SHORTEST_SUBMIT_US = 50.0
"""Minimum microseconds that the host is assumed to need for submitting one call."""
_MARGIN = 1.5
"""The device waits this many times as long as the host needed for the last submissions."""
_CYCLES = 1_000_000
_ATTEMPTS = 4
_DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")
_RELEASE = re.compile(r"(?<![\w.])\d{3,}\.\d+(?:\.\d+)?(?![\w.])|^\d+(?:\.\d+)+")


def devices() -> list[dict[str, Any]]:
    """Facts about every GPU, and about the processor, which only tests tune for."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [_gpu(index) for index in range(count)]
    facts = {"name": "CPU", "arch": "cpu", "sm_count": 1, "driver": ""}
    return [*gpus, {"id": "cpu", **facts}]


def _gpu(index: int) -> dict[str, Any]:
    facts = torch.cuda.get_device_properties(index)
    arch = f"sm_{facts.major}{facts.minor}"
    if torch.version.hip:
        arch = facts.gcnArchName.partition(":")[0]
    return {
        "id": f"cuda:{index}",
        "name": facts.name,
        "arch": arch,
        "sm_count": facts.multi_processor_count,
        "driver": driver(),
        "uuid": _uuid(facts),
    }


def _uuid(facts: Any) -> str:
    """Identifies the GPU in every process of the machine; empty if Torch does not report it."""
    return str(getattr(facts, "uuid", ""))


def lock_name(device: str) -> str:
    """Name of the device's lock, which is the same in every process."""
    uuid = "" if device == "cpu" else _uuid(torch.cuda.get_device_properties(device))
    return uuid or device.replace(":", "-")


def driver() -> str:
    """Release of the GPU's driver; empty if it is unknown."""
    for name in _DRIVERS:
        try:
            text = Path(name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = _RELEASE.search(text)
        if match:
            return match[0]
    return ""


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def stopwatch_for(device: str, *, cold: bool = False) -> Any:
    """Return a timer for the device; on the processor, only `cold` clears the caches."""
    if device != "cpu":
        return EventTimer(device)
    return ColdWallClockTimer() if cold else WallClockTimer()


def cpu_name() -> str:
    """The processor's model."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*: (.+)$", text, flags=re.MULTILINE)
    return match[1] if match else platform.processor() or platform.machine()


class WallClockTimer:
    """Times calls on the processor."""

    rules: Mapping[str, float] = {"longest_warm_up_s": 0.0, "rounds": 8}
    """Rules of a race that differ from the defaults: only tests tune for the processor."""

    def time(self, call: Callable[[], object], count: int) -> Sequence[float]:
        """See `race.Stopwatch`."""
        samples = []
        for _ in range(count):
            self.clear_caches()
            began = time.perf_counter_ns()
            call()
            samples.append((time.perf_counter_ns() - began) / 1000)
        return samples

    def clear_caches(self) -> None:
        """Hook before each call."""


class ColdWallClockTimer(WallClockTimer):
    """Wall-clock timer that first reads a buffer of twice the last-level cache."""

    rules: Mapping[str, float] = {"longest_warm_up_s": 0.5, "calls_per_turn": 5, "rounds": 10}

    def __init__(self) -> None:
        size = min(max(2 * _last_level_cache(), _CACHE), _MAX_CPU_CACHE)
        self._buffer = torch.zeros(size // 4, dtype=torch.int32)

    def clear_caches(self) -> None:
        """See `WallClockTimer.clear_caches`."""
        self._buffer.amax()


def _last_level_cache() -> int:
    """Bytes of the processor's largest cache; 0 if it is unknown."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.match(r"(\d+)K", file.read_text(encoding="ascii", errors="replace"))
        sizes.append(int(match[1]) << 10 if match else 0)
    return max(sizes)


class EventTimer:
    """Times calls on a GPU with its own clock.

    Before each call a buffer of twice the L2 cache is read, so that the call finds cold caches, and
    no lines that have to be written back first. All calls of a turn wait on the device until the
    host has submitted them: what the host needs for a call is no part of its time.
    """

    rules: Mapping[str, float] = {}

    def __init__(self, device: str) -> None:
        self._device = device
        cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        size = max(2 * int(cache), _CACHE)
        self._buffer = torch.zeros(size // 4, dtype=torch.int32, device=device)
        self._largest = torch.empty((), dtype=torch.int32, device=device)
        self._submit_us = 2 * _SHORTEST_SUBMIT_US
        self._waits = False
        """True if the host was too slow at each attempt, because the op itself waits for the
        device."""
        self._cycles_per_us = self._sleep_rate()

    def time(self, call: Callable[[], object], count: int) -> Sequence[float]:
        """See `race.Stopwatch`."""
        attempts = 1 if self._waits else _ATTEMPTS
        self._waits = True
        samples: list[float] = []
        while self._waits and attempts:
            samples, self._waits, submit_us = self._time_calls(call, count)
            # If the device woke up too early, it sleeps for twice as long in the next attempt.
            self._submit_us = max(submit_us, _SHORTEST_SUBMIT_US) * (2 if self._waits else 1)
            attempts -= 1
        return samples

    def _time_calls(
        self, call: Callable[[], object], count: int
    ) -> tuple[list[float], bool, float]:
        """Return microseconds of the calls, True if the host was too slow, and the host's time."""
        pairs = [(_event(), _event()) for _ in range(count)]
        hold_us = _MARGIN * self._submit_us * count
        # The device sleeps until all calls are submitted, so that the host's time is not measured.
        torch.cuda._sleep(int(hold_us * self._cycles_per_us))  # noqa: SLF001 - there is no other
        began = time.perf_counter()
        for begin, end in pairs:
            torch.amax(self._buffer, 0, out=self._largest)
            begin.record()
            call()
            end.record()
        submit_us = (time.perf_counter() - began) * 1e6 / count
        # The first event has passed: the device woke up before the last call was submitted.
        is_late = bool(pairs[0][0].query())
        torch.cuda.synchronize(self._device)
        return [begin.elapsed_time(end) * 1000 for begin, end in pairs], is_late, submit_us

    def _sleep_rate(self) -> float:
        """Cycles of `_sleep` per microsecond, at the highest clock of some attempts."""
        rates: list[float] = []
        for _ in range(_ATTEMPTS):
            begin, end = _event(), _event()
            begin.record()
            torch.cuda._sleep(_CYCLES)  # noqa: SLF001
            end.record()
            torch.cuda.synchronize(self._device)
            rates.append(_CYCLES / max(begin.elapsed_time(end) * 1000, 1.0))
        # With too low a rate, the device would wake up before the host has submitted the calls.
        return max(rates)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)
