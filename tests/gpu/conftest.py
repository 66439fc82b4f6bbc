"""Tests that run kernels on a CUDA GPU; without one they skip with the reason."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

_ASK = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"


@pytest.fixture(scope="session")
def gpu() -> str:
    """The GPU's name, as Torch says it in a process of its own."""
    for package in ("torch", "kernels"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = subprocess.run(  # noqa: TID251
        (sys.executable, "-c", _ASK), capture_output=True, text=True, check=False
    )
    name = done.stdout.strip()
    if not name:
        pytest.skip("Torch sees no CUDA GPU here")
    return name


@pytest.fixture(params=range(2))
def device(request: pytest.FixtureRequest) -> Any:
    """Each of two devices; a machine may have one."""
    import torch

    if request.param >= torch.cuda.device_count():
        pytest.skip(f"no device {request.param}")
    return torch.device("cuda", request.param)
