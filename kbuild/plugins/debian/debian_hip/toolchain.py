"""The toolchain source `debian-hip`: which requirements it serves, and its toolchain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbuild.plan.plan import Requirements
from kbuild.plugins.debian.debian_hip.installation import DebianHipMaker, DebianHipPins, pins
from kbuild.plugins.debian.debian_packages import fetch_packages, missing_downloader_reason
from kbuild.system.errors import ToolchainError
from kbuild.system.store import Store, open_store
from kbuild.system.version import Version
from kbuild.toolchains import build_tools
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.host import HostToolchains, find_cxx
from kbuild.toolchains.rocm import (
    RocmInstallation,
    unsupported_torch_reason,
    with_hip,
    without_device,
)

SYSTEM = "x86_64-linux"
EXPERIMENTAL_RECORD = ("support", "experimental")
_TRANSLATED_NOTE = (
    "Torch {torch} is not a build for ROCm: its headers were translated to HIP, which is "
    "experimental; --torch-wheel takes a wheel for ROCm"
)


@dataclass(frozen=True)
class DebianHipToolchains(ToolchainSource):
    """Debian's clang and HIP headers for device code; `host` for the rest."""

    host: HostToolchains
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    pins: DebianHipPins = field(default_factory=pins)

    name = "debian-hip"
    backends = ("rocm",)

    @property
    def store(self) -> Store:
        """Where the packages are unpacked."""
        return open_store(self.host.cache.folder)

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`."""
        return (
            self._refuses_target(requires)
            or self.host.refuses(without_device(requires))
            or self._refuses_torch(requires)
            or self._refuses_machine()
        )

    def _refuses_target(self, requires: Requirements) -> str | None:
        if requires.backend != "rocm" or requires.toolkit is None:
            return "debian-hip compiles for ROCm only"
        if requires.system not in (SYSTEM, None):
            return f"needs {requires.system}; debian-hip is for {SYSTEM}"
        if Version.parse(requires.toolkit).major != self.pins.rocm:
            return f"needs ROCm {requires.toolkit}; debian-hip is for ROCm {self.pins.rocm}"
        return None

    def _refuses_torch(self, requires: Requirements) -> str | None:
        """The headers of a Torch for another device are translated; one for another ROCm is odd."""
        return (
            unsupported_torch_reason(requires, self.host.facts)
            if self.host.facts["torch"]["built_for"].get("hip")
            else None
        )

    def _refuses_machine(self) -> str | None:
        if self.store.find(self.pins.recipe):
            return None
        try:
            build_tools.patchelf()
        except ToolchainError as error:
            return f"{error.message} ({error.hint})"
        return missing_downloader_reason()

    def folder(self) -> RocmInstallation:
        """Where it is; the first time, packages are fetched and unpacked.

        Raises:
            ToolchainError: they cannot be had.
        """
        return RocmInstallation(self.store.ensure(self.pins.recipe, self._make).root)

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`; the first time, packages are fetched and unpacked."""
        reason = self.refuses(requires)
        if reason is not None:
            raise ToolchainError(f"debian-hip does not fit: {reason}")
        base = self.host.provision(without_device(requires))
        root = self.folder()
        versions: tuple[tuple[str, str], ...] = (
            ("clang", f"{self.pins.clang} (Debian {self.pins.suite})"),
            ("hip", f"{self.pins.hip} headers, for ROCm {self.pins.rocm}"),
            EXPERIMENTAL_RECORD,
        )
        # True for the full ABI of a Torch that was not built for ROCm.
        built_for = self.host.facts["torch"]["built_for"]
        if not (requires.torch is not None and requires.torch_exact and "hip" not in built_for):
            return with_hip(base, self.name, root, versions, self.host)
        torch = self.host.facts["torch"]["version"]
        versions += (("torch-headers", f"of {torch}, translated to HIP"),)
        toolchain = with_hip(base, self.name, root, versions, self.host, full=True)
        return replace(toolchain, notes=(*toolchain.notes, _TRANSLATED_NOTE.format(torch=torch)))

    def _make(self, folder: Path) -> Mapping[str, Any]:
        runner = self.host.runner
        debs = fetch_packages(
            self.pins.shelf, self.host.cache.folder / "downloads", self.environ, runner
        )
        target, patchelf = self.store.place(self.pins.recipe).root, build_tools.patchelf()
        return DebianHipMaker(self.pins, target, patchelf, find_cxx(), runner).fill(folder, debs)
