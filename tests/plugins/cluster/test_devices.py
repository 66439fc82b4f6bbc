"""The GPUs of a worker: what a process sees of them, and that only one has each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbuild.dsl.tune.host import Device
from kbuild.plugins.cluster.worker_compiler import (
    WorkerRuntime,
    answer_request,
    device_environment,
    held_device,
)

GPUS = tuple(Device(f"cuda:{n}", "H100", "sm_90", 132) for n in range(2))


@pytest.mark.parametrize(
    ("device", "environ", "expected"),
    [
        (GPUS[1], {}, {"CUDA_VISIBLE_DEVICES": "1"}),
        (GPUS[1], {"CUDA_VISIBLE_DEVICES": "4,GPU-7"}, {"CUDA_VISIBLE_DEVICES": "GPU-7"}),
        (Device("cuda:1", "MI300X", "gfx942", 304), {}, {"HIP_VISIBLE_DEVICES": "1"}),
    ],
)
def test_a_process_sees_its_gpu_alone(
    device: Device, environ: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    assert device_environment(device, environ) == expected


def _give_up(_: float) -> None:
    raise TimeoutError


def test_a_gpu_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ExitStack() as stack:
        held = [stack.enter_context(held_device(GPUS, {})) for _ in GPUS]
        assert held == list(GPUS)
        monkeypatch.setattr("kbuild.plugins.cluster.worker_compiler.sleep", _give_up)
        with pytest.raises(TimeoutError), held_device(GPUS, {}):
            pass
    with held_device(GPUS, {}) as device:
        assert device == GPUS[0]


@pytest.mark.torch
def test_the_runtime_is_that_of_the_interpreter(tmp_path: Path) -> None:
    answer = answer_request({"runtime": sys.executable, "cache": str(tmp_path)})
    runtime = WorkerRuntime.from_json(answer)
    assert runtime.torch
    assert runtime.pytest
    assert runtime.version == ".".join(map(str, sys.version_info[:3]))
    assert runtime.to_json() == answer | {"devices": runtime.to_json()["devices"]}
