"""Toolchains of plug-ins: classes that the entry point group `kbuild.toolchains` names.

A class takes the host's toolchains. One that has nvcc for CUDA releases without a compiler in
wheels also has the method `cuda_toolkits`, which `auto` and `wheels` ask.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kbuild.system.errors import UsageError
from kbuild.system.plugins import plugin_points
from kbuild.toolchains.base import ToolchainSource
from kbuild.toolchains.cuda_toolkits import StoredCudaToolkits
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.wheels.installer import WheelInstaller

TOOLCHAINS = "kbuild.toolchains"


class ToolchainPlugin(Protocol):
    """A class of a plug-in."""

    def __call__(self, host: HostToolchains) -> ToolchainSource:
        """The source, for the interpreter, cache and Torch that a command line asks for."""

    def cuda_toolkits(self, installer: WheelInstaller, cache: Path) -> StoredCudaToolkits:
        """The toolkits that it fetches; `cache` is kbuild's cache folder."""


def plugin_toolchain_names() -> tuple[str, ...]:
    """The toolchains of plug-ins."""
    return tuple(sorted(point.name for point in plugin_points(TOOLCHAINS)))


def plugin_toolchain(name: str, host: HostToolchains, own: tuple[str, ...]) -> ToolchainSource:
    """The toolchain of a plug-in; `own` are kbuild's names.

    Raises:
        UsageError: there is none of that name.
    """
    points = {point.name: point for point in plugin_points(TOOLCHAINS)}
    if name not in points:
        hint = f"one of {', '.join((*own, *sorted(points)))}"
        raise UsageError(f"`{name}` is not a toolchain", hint=hint)
    make: ToolchainPlugin = points[name].load()
    return make(host)


def plugin_cuda_toolkits(installer: WheelInstaller, cache: Path) -> tuple[StoredCudaToolkits, ...]:
    """The CUDA toolkits that plug-ins fetch; one that cannot be imported has none."""
    toolkits = []
    for point in plugin_points(TOOLCHAINS):
        try:
            plugin: ToolchainPlugin = point.load()
        except ImportError:
            continue
        if hasattr(plugin, "cuda_toolkits"):
            toolkits.append(plugin.cuda_toolkits(installer, cache))
    return tuple(toolkits)
