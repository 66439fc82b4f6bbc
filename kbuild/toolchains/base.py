"""Toolchains, and the interface of their sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kbuild.plan.plan import Requirements, ToolchainSummary

_FRAMEWORK_NAMES = {"torch", "apache-tvm-ffi"}


@dataclass(frozen=True)
class Toolchain:
    """Provisioned compilers, headers and libraries."""

    source: str
    cmake: Path
    ninja: Path
    python: Path
    """Interpreter whose Torch was chosen; also runs the load check."""
    cache: tuple[tuple[str, str], ...] = ()
    """CMake cache entries: the facts that generated projects need (`KBUILD_TORCH_ROOT`, ...)."""
    versions: tuple[tuple[str, str], ...] = ()
    """Programs and frameworks, e.g. `("g++", "12.2.0")`, `("torch", "2.13.0+cpu")`."""
    headers: tuple[tuple[str, str], ...] = ()
    """Header dependencies: release, and where it came from."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the build's processes."""
    store: Path | None = None
    """Folder of kbuild's own installations: their names count in the fingerprint, not its place."""
    redistributable: bool = False
    """True when what it makes runs on every system of the manylinux policy."""
    notes: tuple[str, ...] = ()
    """Remarks for the user, e.g. why its results are not redistributable."""

    @property
    def compilers(self) -> tuple[tuple[str, str], ...]:
        """Versions of the compilers, without the frameworks that they compile against."""
        return tuple(entry for entry in self.versions if entry[0] not in _FRAMEWORK_NAMES)

    @property
    def fingerprint(self) -> str:
        """Digest that changes with anything that can change an object file."""
        place = "" if self.store is None else str(self.store)
        # Without the store's place, so that machines with different home folders agree.
        cache = [(name, value.replace(place, "") if place else value) for name, value in self.cache]
        text = json.dumps([self.source, cache, self.versions, self.headers], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def summary(self) -> ToolchainSummary:
        """The summary for the plan and for provenance."""
        return ToolchainSummary(self.source, (*self.versions, *self.headers), self.fingerprint)


class ToolchainSource:
    """Base of all ways to obtain a toolchain."""

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]] = ()
    """Names of the only backends that the source is for; empty for any."""
    cross: str | None = None
    """Another system than this machine's, which is then the only one that the source is for."""

    def is_for(self, backend: str) -> bool:
        """True for a backend that it may serve on some machine."""
        return not self.backends or backend in self.backends

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """The reason not to serve the requirements, in one sentence; None when it can."""
        raise NotImplementedError

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """The summary of the toolchain that `provision` would give; fetches nothing."""
        return self.provision(requires).summary

    def compiler(self, requires: Requirements) -> str | None:
        """Release of the device compiler where it is another than the variant's.

        What it can target and which flags it knows is then decided by this one.
        """
        del requires
        return None

    def provision(self, requires: Requirements) -> Toolchain:
        """The toolchain.

        Raises:
            ToolchainError: with what is missing and how to get it.
        """
        raise NotImplementedError
