"""Given wheels before every other Torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.plan import Requirements, ToolchainSummary
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.torch_wheel.given import TorchWheel


@dataclass(frozen=True)
class GivenFirst(ToolchainSource):
    """The first wheel that fits decides for a variant; `others` serve what no wheel fits."""

    given: Sequence[tuple[TorchWheel, ToolchainSource]]
    """Each wheel with the compilers, set up for its Torch."""
    others: ToolchainSource

    name = "torch-wheel"

    def _source(self, requires: Requirements) -> ToolchainSource:
        fitting = (tools for wheel, tools in self.given if wheel.fits(requires))
        return next(fitting, self.others)

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`: a wheel that fits is not passed over silently."""
        return self._source(requires).refuses(requires)

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`."""
        return self._source(requires).preview(requires)

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        return self._source(requires).provision(requires)
