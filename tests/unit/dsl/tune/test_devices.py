"""Which devices are chosen."""

from __future__ import annotations

import pytest

from kbuild.dsl.tune.host import AvailableDevices, Device
from kbuild.system.errors import ToolchainError

DEVICES = tuple(Device(f"cuda:{n}", "NVIDIA H200", "sm_90", 132) for n in range(3))


class TestDevices:
    FOUND = AvailableDevices((*DEVICES, Device("cpu", "CPU", "cpu", 1)))

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ((), ["cuda:0"]),
            (("all",), ["cuda:0", "cuda:1", "cuda:2"]),
            (("1", "cuda:2", "1"), ["cuda:1", "cuda:2"]),
            (("cuda",), ["cuda:0"]),
            (("cpu",), ["cpu"]),
            (("h200",), ["cuda:0", "cuda:1", "cuda:2"]),
        ],
    )
    def test_names(self, wanted, expected):
        assert [device.id for device in self.FOUND.chosen(wanted)] == expected

    @pytest.mark.parametrize("wanted", [(), ("cuda:0",), ("all",)])
    def test_without_a_gpu(self, wanted):
        """Also `kbuild bench` and `kbuild dev` say so."""
        alone = AvailableDevices((Device("cpu", "CPU", "cpu", 1, torch="2.13.0"),))
        with pytest.raises(ToolchainError) as raised:
            alone.chosen(wanted)
        assert raised.value.message == "Torch 2.13.0 finds no GPU here"
