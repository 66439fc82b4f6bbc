"""What the timer of a GPU keeps out of a time; the test turns the clocks of device and host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from kbuild.dsl.tune.probes import devices  # noqa: E402

KERNEL_US, FLUSH_US = 20.0, 40.0


class FakeStream:
    """Work that the host submits and the device does, each with a clock in microseconds."""

    def __init__(self) -> None:
        self.host = self.device = 0.0
        self.call_us = 5.0
        """What the host needs to submit the op."""
        self.sleeps = 0
        stream = self

        class Event:
            def __init__(self, **_: Any) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = stream.submit(0.0)

            def query(self) -> bool:
                return self.at <= stream.host

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) / 1000

        self.cuda = SimpleNamespace(
            Event=Event,
            _sleep=self.sleep,
            synchronize=self.synchronize,
            get_device_properties=lambda _: SimpleNamespace(L2_cache_size=50 << 20),
        )
        self.int32 = None
        self.sizes: list[int] = []

    def submit(self, us: float, host_us: float = 5.0) -> float:
        self.host += host_us
        self.device = max(self.device, self.host) + us
        return self.device

    def sleep(self, cycles: int) -> None:
        self.sleeps += 1
        self.submit(cycles / 1000)

    def synchronize(self, _device: str = "") -> None:
        self.host = max(self.host, self.device)

    def zeros(self, size: int, **_: Any) -> int:
        return size

    def empty(self, *_: Any, **_more: Any) -> None:
        return None

    def amax(self, size: int, _dim: int, out: Any) -> None:
        self.sizes.append(4 * size)
        self.submit(FLUSH_US)

    def op(self) -> None:
        self.submit(KERNEL_US, self.call_us)

    def waiting_op(self) -> None:
        self.op()
        self.synchronize()


@pytest.fixture
def stream(monkeypatch):
    fake = FakeStream()
    monkeypatch.setattr(devices, "torch", fake)
    clock = SimpleNamespace(perf_counter=lambda: fake.host / 1e6)
    monkeypatch.setattr(devices, "time", clock)
    return fake


@pytest.mark.parametrize("call_us", [5.0, 50.0, 500.0, 5000.0])
def test_what_the_host_needs_is_no_part_of_the_time(stream, call_us):
    stream.call_us = call_us
    timer = devices.EventTimer("cuda:0")
    for _ in range(3):
        assert timer.time(stream.op, 20) == pytest.approx([KERNEL_US] * 20)


def test_the_cache_is_flushed_before_each_call(stream):
    devices.EventTimer("cuda:0").time(stream.op, 5)
    assert stream.sizes == [2 * (50 << 20)] * 5


def test_an_op_that_waits_for_the_device_is_timed_as_it_is(stream):
    timer = devices.EventTimer("cuda:0")
    assert len(timer.time(stream.waiting_op, 4)) == 4
    first = stream.sleeps
    timer.time(stream.waiting_op, 4)
    assert stream.sleeps == first + 1  # it is known by now
    timer.time(stream.op, 4)
    timer.time(stream.op, 4)
    assert timer.time(stream.op, 4) == pytest.approx([KERNEL_US] * 4)
