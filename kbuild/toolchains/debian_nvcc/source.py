"""The toolchain source that `--toolchain debian-nvcc` names: CUDA 12 and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.errors import ToolchainError
from kbuild.plan import Requirements, ToolchainSummary
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.debian_nvcc.toolkit import DebianNvccToolkits
from kbuild.toolchains.wheels.source import Wheels


@dataclass(frozen=True)
class DebianNvcc(ToolchainSource):
    """Debian's nvcc for device code, also where a local toolkit would fit; wheels for the rest."""

    wheels: Wheels
    """Has Debian's toolkits and no others."""
    toolkits: DebianNvccToolkits

    name = "debian-nvcc"

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`."""
        if requires.backend != "cuda" or requires.toolkit is None:
            return "debian-nvcc compiles for CUDA only"
        reason = self.toolkits.refuses(requires.toolkit)
        if reason is not None:
            return f"needs CUDA {requires.toolkit}: {reason}"
        return self.wheels.refuses(requires)

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`."""
        return self.wheels.preview(requires)

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        return self.wheels.compiler(requires)

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        reason = self.refuses(requires)
        if reason is not None:
            raise ToolchainError(f"debian-nvcc does not fit: {reason}")
        return self.wheels.provision(requires)
