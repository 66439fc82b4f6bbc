"""Toolchains, the interface of their sources, and a source that tries several in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kbuild.plan.plan import Requirements, ToolchainSummary
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.store import Store

_FRAMEWORK_NAMES = {"torch", "torch-wheel", "apache-tvm-ffi"}


@dataclass(frozen=True)
class Toolchain:
    """Provisioned compilers, headers and libraries."""

    source: str
    """Name of the `ToolchainSource` that provided it."""
    cmake: Path
    ninja: Path
    python: Path
    """Interpreter whose Torch was chosen; also runs the load check."""
    cache: tuple[tuple[str, str], ...] = ()
    """CMake cache entries: the facts that generated projects need (`KBUILD_TORCH_ROOT`, ...)."""
    versions: tuple[tuple[str, str], ...] = ()
    """What was found, e.g. `("g++", "12.2.0")`, `("torch", "2.13.0+cpu")`."""
    headers: tuple[tuple[str, str], ...] = ()
    """Header dependencies: release, and where it came from."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the build's processes."""
    store: Path | None = None
    """Folder of kbuild's own installations: their names count in the fingerprint, not its place."""
    redistributable: bool = False
    """True when what it makes runs on every system of the manylinux policy."""
    notes: tuple[str, ...] = ()
    """What the user should know about it, e.g. why its results are not redistributable."""

    @property
    def compilers(self) -> tuple[tuple[str, str], ...]:
        """The versions of what compiles, without the frameworks that are compiled against."""
        return tuple(entry for entry in self.versions if entry[0] not in _FRAMEWORK_NAMES)

    @property
    def fingerprint(self) -> str:
        """Changes when anything that can change an object file changes."""
        place = "" if self.store is None else str(self.store)
        cache = [(name, value.replace(place, "") if place else value) for name, value in self.cache]
        text = json.dumps([self.source, cache, self.versions, self.headers], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def summary(self) -> ToolchainSummary:
        """For the plan and for provenance."""
        return ToolchainSummary(self.source, (*self.versions, *self.headers), self.fingerprint)


class TorchProvider(Protocol):
    """A Torch that is not the interpreter's: a wheel's."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """As `probe.torch_facts` gives them; the folders are there after `provide`."""

    @property
    def record(self) -> tuple[tuple[str, str], ...]:
        """What the toolchain's versions say of it, beside `torch`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Toolchain.notes`."""

    @property
    def store(self) -> Store:
        """Where its files are."""

    def provide(self) -> object:
        """Put its files in place.

        Raises:
            ToolchainError: they cannot be had.
        """


class ToolchainSource:
    """Base of all ways to obtain a toolchain."""

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]] = ()
    """The only ones that it is for; empty when it is for any."""

    def is_for(self, backend: str) -> bool:
        """True for a backend that it may serve on some machine."""
        return not self.backends or backend in self.backends

    def refuses(self, requires: Requirements) -> str | None:
        """Why this source cannot serve the requirements, in one sentence; None when it can."""
        raise NotImplementedError

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """What `provision` would provide; fetches nothing."""
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


class CachedToolchains(ToolchainSource):
    """Asks another source once about the same requirements; errors are not kept."""

    name = "cached"

    def __init__(self, source: ToolchainSource) -> None:
        for method in ("refuses", "preview", "compiler", "provision"):
            setattr(self, method, cache(getattr(source, method)))


@dataclass(frozen=True)
class FallbackToolchains(ToolchainSource):
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
            if source.is_for(requires.backend):
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
