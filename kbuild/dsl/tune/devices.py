"""The devices that the user's interpreter sees, and how its process is started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from kbuild.backends import rocm
from kbuild.project.config.issue import listed
from kbuild.system.errors import DamagedFileError, ToolchainError, UsageError
from kbuild.system.untrusted import parse_json

PROBE_PACKAGE = "kbuild.dsl.tune.probes"
ALL = "all"
CPU = "cpu"
"""The processor, which only tests tune for."""


@dataclass(frozen=True)
class Device:
    """One device."""

    id: str
    """Torch's name: `cuda:0`, also for AMD's GPUs."""
    name: str
    arch: str
    sm_count: int
    driver: str = ""
    uuid: str = ""
    """Identifies the GPU in every process of the machine; empty if Torch does not report it."""
    torch: str = ""
    """Release of the Torch that sees the device."""

    def has_name(self, name: str) -> bool:
        """True for its id, the short forms `0` and `cuda`, and a part of the model's name."""
        is_model = bool(name) and not name.isdigit()
        is_part = is_model and name.casefold() in self.name.casefold()
        return self.id == _device_id(name) or is_part

    @property
    def backend(self) -> str:
        """The backend whose variants run on it."""
        return "rocm" if rocm.is_arch(self.arch) else CPU if self.arch == CPU else "cuda"

    @property
    def capability(self) -> str:
        """The arch as `build.toml` writes it: `9.0`, `gfx942`."""
        number = self.arch.removeprefix("sm_")
        return self.arch if number == self.arch else f"{number[:-1]}.{number[-1]}"

    @property
    def answers(self) -> dict[str, int]:
        """The answers to expressions about a device."""
        number = self.arch.removeprefix("sm_")
        capability = int(number) if number.isdigit() else 0
        return {"sm_count()": self.sm_count, "capability()": capability}

    @property
    def build(self) -> tuple[str, str]:
        """The key that devices share which run the same variant."""
        return self.torch, self.backend

    @property
    def model(self) -> tuple[str, str]:
        """The key that devices share which use one table."""
        return self.name, self.arch


@dataclass(frozen=True)
class AvailableDevices:
    """The devices to measure on: of this machine, or of other machines."""

    devices: tuple[Device, ...]
    is_elsewhere: bool = False
    """True if ids begin with the name of a worker: `WORKER/cuda:0`."""

    def chosen(self, wanted: Sequence[str]) -> tuple[Device, ...]:
        """The devices with these names, or of a model with such a name; `all` means every GPU.

        Without names, it is the first GPU of this machine, or every GPU of other machines.

        Raises:
            ToolchainError: there is no GPU at all.
            UsageError: one of them does not exist.
        """
        gpus = tuple(device for device in self.devices if device.backend != CPU)
        names = wanted or ([ALL] if self.is_elsewhere else [gpu.id for gpu in gpus[:1]])
        named = {name: [one for one in self.devices if one.has_name(name)] for name in names}
        if not gpus and not any(named.values()):
            raise self._no_gpu_error()
        if ALL in names:
            return gpus
        for name, some in named.items():
            if not some:
                hint = f"there is: {listed([*(gpu.id for gpu in gpus), ALL])}"
                raise UsageError(f"there is no device `{_device_id(name)}`", hint=hint)
        return tuple(dict.fromkeys(device for some in named.values() for device in some))

    def _no_gpu_error(self) -> ToolchainError:
        if self.is_elsewhere:
            hint = "their interpreters need a Torch that finds it"
            return ToolchainError("no machine of the executor has a GPU", hint=hint)
        torch = next((device.torch for device in self.devices), "")
        hint = "--python names an interpreter whose Torch is built for the GPU"
        return ToolchainError(f"Torch {torch} finds no GPU here", hint=hint)


def torch_missing_error(python: Path) -> ToolchainError:
    """Error for an interpreter that has no Torch."""
    hint = "activate an environment that has Torch, or name its interpreter with --python"
    return ToolchainError(f"`{python}` has no Torch to run the kernel with", hint=hint)


def probe_command(python: Path, *arguments: str) -> tuple[str, ...]:
    """Command that starts the programs of `probes`."""
    return (str(python), str(files(PROBE_PACKAGE)), *arguments)


def probe_environment() -> dict[str, str]:
    """Environment variables of the programs of `probes`."""
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


def parse_answer(line: str) -> dict[str, Any]:
    """Parse a JSON object from a line; empty for other lines, since kernels may print too."""
    if not line.startswith("{"):
        return {}
    try:
        return parse_json(line, "the answer", "an answer")
    except DamagedFileError:
        return {}


def _device_id(name: str) -> str:
    return f"cuda:{name}" if name.isdigit() else "cuda:0" if name == "cuda" else name
