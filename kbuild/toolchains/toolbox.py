"""Several ways to obtain a toolchain as one: the first that does not refuse provides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.errors import ToolchainError
from kbuild.plan import Requirements
from kbuild.toolchains.base import Toolchain, ToolchainSource


@dataclass(frozen=True)
class Toolbox(ToolchainSource):
    """Sources in order of preference."""

    sources: Sequence[ToolchainSource]

    name = "auto"

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`: every source's reason when all of them refuse."""
        reasons: dict[str, list[str]] = {}
        for source in self.sources:
            reason = source.refuses(requires)
            if reason is None:
                return None
            reasons.setdefault(reason, []).append(source.name)
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{'/'.join(names)}: {reason}" for reason, names in reasons.items())

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        for source in self.sources:
            if source.refuses(requires) is None:
                return source.provision(requires)
        raise ToolchainError(f"no toolchain fits: {self.refuses(requires)}")
