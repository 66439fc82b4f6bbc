"""Several ways to obtain a toolchain as one: the first that does not refuse provides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.errors import ToolchainError
from kbuild.matrix.selection import host_system
from kbuild.plan import Requirements, ToolchainSummary
from kbuild.toolchains.base import Toolchain, ToolchainSource


@dataclass(frozen=True)
class Toolbox(ToolchainSource):
    """Sources in order of preference."""

    sources: Sequence[ToolchainSource]

    name = "auto"

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`: when all refuse, the reasons of those that are for it."""
        reasons: dict[str, str] = {}
        for source in self.sources:
            reason = source.refuses(requires)
            if reason is None:
                return None
            if not source.backends or requires.backend in source.backends:
                reasons[source.name] = reason
        here = str(host_system())
        if requires.system not in (None, here):
            return f"needs {requires.system}; this machine is {here}"
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
