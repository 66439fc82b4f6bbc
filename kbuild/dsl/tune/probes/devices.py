"""The devices that this process's Torch sees, timers for calls on them, and their tensors."""

from __future__ import annotations

import importlib
import math
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
        # True makes the loop begin; each attempt then sets it.
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


RTOL = {
    "float64": 1e-7,
    "float32": 1e-3,
    "float16": 1e-2,
    "bfloat16": 2e-2,
    # About one step between neighbours: the mantissa has 3 bits here, and 2 bits below.
    "float8_e4m3fn": 0.13,
    "float8_e5m2": 0.26,
}
"""dtype -> how far a result may be from the expected one, relative to it; integers not at all.
float32 leaves room for products in TF32."""
_INTEGERS = 8
"""Generated integers are below this."""


def make_inputs(arguments: Sequence[Mapping[str, Any]], device: str) -> list[Any]:
    """Generate the arguments' values, the same each time: normal floats, small integers.

    For `arguments` see `kbuild.dsl.tune.cases.BenchmarkCase.arguments`.
    """
    generator = torch.Generator(device=device).manual_seed(0)
    return [_value(argument, generator, device) for argument in arguments]


def _value(argument: Mapping[str, Any], generator: Any, device: str) -> Any:
    if "value" in argument:
        return argument["value"]
    if "shape" not in argument:
        return getattr(torch, argument["dtype"])
    shape = argument["shape"]
    if shape is None:
        return None
    dtype = getattr(torch, argument["dtype"])
    if dtype.is_floating_point:
        # Torch draws no random numbers of 8 bits.
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        tensor = torch.randn(shape, generator=generator, device=device, dtype=wide)
    else:
        most = 2 if dtype == torch.bool else _INTEGERS
        tensor = torch.randint(most, shape, generator=generator, device=device)
    return tensor.to(dtype)


def joined(
    arguments: Sequence[Mapping[str, Any]], values: Sequence[Any]
) -> list[tuple[Mapping[str, Any], Any]]:
    """Pairs of argument and value; the tensors of a list become one pair."""
    pairs: list[tuple[Mapping[str, Any], Any]] = []
    for argument, value in zip(arguments, values, strict=True):
        # Item 0 is left to the next branch, which begins the list.
        if argument.get("item"):
            pairs[-1][1].append(value)
        elif "list" in argument:
            pairs.append(({**argument, "name": argument["list"]}, [value]))
        else:
            pairs.append((argument, value))
    return pairs


def chosen(inputs: Mapping[str, Any], argument: Mapping[str, Any], value: Any) -> Any:
    """The author's value for an argument; the generated one where the author gives none."""
    if "list" not in argument:
        return inputs.get(argument["name"], value)
    items = inputs.get(argument["list"])
    return value if items is None else items[argument["item"]]


def copies(values: Sequence[Any], arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Copy the tensors that the op writes to, with their initial values; others stay."""
    copied = [
        value.clone() if argument.get("writes") and value is not None else value
        for value, argument in zip(values, arguments, strict=True)
    ]
    restore(copied, values, arguments)
    return copied


def restore(
    own: Sequence[Any], values: Sequence[Any], arguments: Sequence[Mapping[str, Any]]
) -> None:
    """Restore the tensors in `own` that a candidate wrote to; does not synchronise."""
    for tensor, value, argument in zip(own, values, arguments, strict=True):
        if value is not None and "reset" in argument:
            # NaN and infinities are text, since JSON has no numbers for them.
            tensor.fill_(float(argument["reset"]))
        elif value is not None and argument.get("writes"):
            tensor.copy_(value)


def results(
    returned: Any, values: Sequence[Any], arguments: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Results of a call, followed by the tensors that it wrote to."""
    outputs = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    pairs = zip(values, arguments, strict=True)
    outputs += [value for value, argument in pairs if argument.get("writes")]
    return [tensor for tensor in outputs if tensor is not None]


def difference(
    actual: Sequence[Any], expected: Sequence[Any], rtol: float | None, atol: float | None
) -> str:
    """Description of the first difference between results; empty if there is none."""
    if len(actual) != len(expected):
        return f"{len(actual)} results, {len(expected)} were expected"
    for index, (result, other) in enumerate(zip(actual, expected, strict=True)):
        problem = _differs(result, other, rtol, atol)
        if problem:
            return problem if len(actual) == 1 else f"result {index}: {problem}"
    return ""


def _differs(actual: Any, expected: Any, rtol: float | None, atol: float | None) -> str:
    if actual.shape != expected.shape:
        return f"the shape is {tuple(actual.shape)}, {tuple(expected.shape)} was expected"
    if not actual.is_floating_point():
        count = int((actual != expected).sum())
        return f"{count} of {actual.numel()} values differ" if count else ""
    wide = torch.float64 if actual.dtype == torch.float64 else torch.float32
    value, other = actual.to(wide), expected.to(wide)
    if rtol is None:
        rtol = RTOL[str(actual.dtype).removeprefix("torch.")]
    if atol is None:
        # Relative to the root mean square of the finite values, so that results near 0 may round.
        finite = other[torch.isfinite(other)]
        magnitude = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        atol = rtol * magnitude
    wrong = ~torch.isclose(value, other, rtol=rtol, atol=atol, equal_nan=True)
    count = int(wrong.sum())
    if not count:
        return ""
    most = float((value - other)[wrong].abs().nan_to_num(nan=math.inf).max())
    return f"{count} of {actual.numel()} values differ, by up to {most:.3g}"
