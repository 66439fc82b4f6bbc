"""Several ways to obtain a toolchain as one: the first that does not refuse provides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.errors import ToolchainError
from kbuild.plan import Requirements, ToolchainSummary
from kbuild.toolchains.base import Toolchain, ToolchainSource


@dataclass(frozen=True)
class Toolbox(ToolchainSource):
    """Sources in order of preference."""

    sources: Sequence[ToolchainSource]

    name = "auto"

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`: every source's reason when all of them refuse."""
        reasons: dict[str, str] = {}
        for source in self.sources:
            reason = source.refuses(requires)
            if reason is None:
                return None
            reasons[source.name] = reason
        if len(set(reasons.values())) == 1:
            return next(iter(reasons.values()))
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`."""
        return self._first(requires).preview(requires)

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        return self._first(requires).compiler(requires)

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        return self._first(requires).provision(requires)

    def _first(self, requires: Requirements) -> ToolchainSource:
        for source in self.sources:
            if source.refuses(requires) is None:
                return source
        raise ToolchainError(f"no toolchain fits: {self.refuses(requires)}")
