"""CUDA toolkits that come whole from wheels, as a source of toolkits."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.toolchains.toolkit import Toolkit, ToolkitSource, Versions
from kbuild.toolchains.wheels import cuda
from kbuild.toolchains.wheels.installer import Installer


@dataclass(frozen=True)
class WheelToolkits(ToolkitSource):
    """What the lock pins."""

    installer: Installer

    name = "wheels"

    def refuses(self, release: str) -> str | None:
        """See `ToolkitSource.refuses`."""
        lock = self.installer.lock
        if lock.toolkit(release):
            return None
        return cuda.refuses(release) or f"pinned are {', '.join(lock.cuda)}"

    def preview(self, release: str) -> Versions:
        """See `ToolkitSource.preview`."""
        return (("cuda", release),)

    def provide(self, release: str) -> Toolkit:
        """See `ToolkitSource.provide`."""
        entry = self.installer.cuda(release)
        programs = self.installer.lock.cuda[release].programs
        nvcc = next(wheel for wheel in programs if wheel.project == "nvidia-cuda-nvcc")
        versions = (("cuda", entry.version), ("nvcc", nvcc.version))
        return Toolkit(self.name, entry.root, entry.root / "bin" / "nvcc", versions)
