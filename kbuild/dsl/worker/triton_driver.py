"""Replaces Triton's driver; its answers hold for every device of the arch."""

from __future__ import annotations

import importlib
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from kbuild.dsl.worker import device as devices

LAUNCHERS: tuple[Any, ...] = (
    triton.runtime.JITFunction,
    triton.runtime.Autotuner,
    triton.runtime.Heuristics,
)
"""Classes whose `run` launches a kernel."""


def install() -> None:
    """Install the driver, and make launches raise an error."""
    _forget_key()
    triton.runtime.driver.set_active(TargetDriver())
    for kind in LAUNCHERS:
        kind.run = refuse_launch


class TargetDriver:
    """Triton's driver, with the answers that hold for every device of the arch."""

    def __init__(self) -> None:
        self.utils = _Utils()

    @staticmethod
    def is_active() -> bool:
        """True if the target is a GPU."""
        return bool(devices.current.ask("driver.active.is_active()").backend)

    def get_current_device(self) -> int:
        """Number of the device."""
        return devices.device_index("driver.active.get_current_device()")

    def get_current_target(self) -> Any:
        """Target for `triton.compile`."""
        facts = devices.current.gpu("driver.active.get_current_target()").facts
        major, minor = facts["capability"]
        arch = facts["arch"] if facts["backend"] == "hip" else major * 10 + minor
        return GPUTarget(facts["backend"], arch, facts["warp"])

    def get_device_interface(self) -> Any:
        """Torch's module for the device."""
        devices.current.some_gpu("driver.active.get_device_interface()")
        return importlib.import_module("torch").cuda

    def get_active_torch_device(self) -> Any:
        """The device as a `torch.device`."""
        devices.current.some_gpu("driver.active.get_active_torch_device()")
        return importlib.import_module("torch").device("cuda", 0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return devices.UnknownValue(f"driver.active.{name}")


_PROPERTIES = (
    "max_shared_mem", "max_num_regs", "multiprocessor_count", "warpSize", "sm_clock_rate",
    "mem_clock_rate", "mem_bus_width", "arch", "cu_count",
)  # fmt: skip


def triton_device_properties() -> dict[str, Any]:
    """Answers of `driver.active.utils.get_device_properties()` that hold for an arch."""
    device = devices.current.gpu("driver.active.utils.get_device_properties()")
    facts = device.facts
    known = {"max_shared_mem": facts["shared"], "warpSize": facts["warp"]}
    registers = facts["properties"].get("regs_per_multiprocessor")
    if registers is not None:
        known["max_num_regs"] = registers
    if device.backend == "hip":
        known["arch"] = device.arch
    names = _PROPERTIES if device.backend == "hip" else _PROPERTIES[:-2]
    question = "get_device_properties()"
    return {name: devices.device_dependent(f"{question}[{name!r}]") for name in names} | known


class _Utils:
    """Functions of `driver.active.utils`."""

    def get_device_properties(self, _: Any = 0) -> Any:
        return triton_device_properties()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return devices.UnknownValue(f"driver.active.utils.{name}")


def refuse_launch(function: Any, *_: Any, **__: Any) -> Any:
    """Replacement for `run`: raise an error, since a build has no GPU."""
    name = getattr(getattr(function, "base_fn", function), "__name__", "a kernel")
    devices.current.refuse(
        f"`{name}` is launched on import, but a build has no GPU",
        hint="launch it in a function that is not called when the kernels' module is imported",
    )


def _forget_key() -> None:
    """Skip Triton's hash of its own files: units have kbuild's keys."""
    from triton.compiler import compiler
    from triton.runtime import autotuner, cache

    for module in (compiler, cache, autotuner):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: str(triton.__version__)
