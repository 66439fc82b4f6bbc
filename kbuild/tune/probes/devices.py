"""The devices of this process's Torch, and how calls on them are timed."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")

_CACHE = 64 << 20
"""Bytes that are written between calls at least: they also give the host time to catch up."""
_DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")
_RELEASE = re.compile(r"(?<![\w.])\d{3,}\.\d+(?:\.\d+)?(?![\w.])|^\d+(?:\.\d+)+")


def devices() -> list[dict[str, Any]]:
    """Every GPU, and the processor, which only tests tune for."""
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
    }


def driver() -> str:
    """The release of the GPU's driver; empty when nothing says it."""
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


def stopwatch_for(device: str) -> Any:
    """What times calls there."""
    return WallClockTimer() if device == "cpu" else EventTimer(device)


class WallClockTimer:
    """Times calls on the processor."""

    def time(self, call: Callable[[], object], count: int) -> Sequence[float]:
        """See `race.Stopwatch`; caches stay as they are."""
        samples = []
        for _ in range(count):
            began = time.perf_counter_ns()
            call()
            samples.append((time.perf_counter_ns() - began) / 1000)
        return samples


class EventTimer:
    """Times calls on a GPU with its own clock.

    Between two calls a buffer of twice the L2 cache is written: the next one finds cold caches, and
    the host has the time to submit it before the device is done, so that its own cost is no part of
    the time.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        size = max(2 * int(cache), _CACHE)
        self._buffer = torch.empty(size, dtype=torch.uint8, device=device)

    def time(self, call: Callable[[], object], count: int) -> Sequence[float]:
        """See `race.Stopwatch`."""
        pairs = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(count)
        ]
        for begin, end in pairs:
            self._buffer.zero_()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize(self._device)
        return [begin.elapsed_time(end) * 1000 for begin, end in pairs]
