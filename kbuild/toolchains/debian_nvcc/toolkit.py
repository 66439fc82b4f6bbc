"""Debian's nvcc as a source of toolkits, for every release of CUDA 12 from its own on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.matrix.archs import arch_table
from kbuild.store import Entry, Recipe
from kbuild.toolchains.debian.fetch import fetch, refuses_download
from kbuild.toolchains.debian_nvcc import licence
from kbuild.toolchains.debian_nvcc.maker import DebianNvccMaker, recipe_of
from kbuild.toolchains.debian_nvcc.pins import Pins, pins
from kbuild.toolchains.toolkit import Toolkit, ToolkitSource, Versions
from kbuild.toolchains.wheels.cuda import CudaMaker
from kbuild.toolchains.wheels.installer import Installer
from kbuild.toolchains.wheels.lock import LockedToolkit
from kbuild.version import Version

_DYNAMIC_RUNTIME = "--cudart=shared"  # wheels have no libcudart_static.a


@dataclass(frozen=True)
class DebianNvccToolkits(ToolkitSource):
    """One nvcc for several releases: its code runs with any later runtime of CUDA 12."""

    installer: Installer
    cache: Path
    """kbuild's cache folder."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    pins: Pins = field(default_factory=pins)

    name = "debian-nvcc"

    def refuses(self, release: str) -> str | None:
        """See `ToolkitSource.refuses`."""
        own, wanted = self.pins.release, Version.parse(release)
        if wanted.major != own.major or wanted < own:
            return f"debian-nvcc is for CUDA {own.major}, from {own} on"
        if self._headers is None:
            return f"the lock of toolchains has no headers of CUDA {own}"
        if not licence.is_accepted(self.environ):
            return f"to use nvcc {self.pins.title}, {licence.asks()}"
        return None if self._installed else refuses_download()

    def preview(self, release: str) -> Versions:
        """See `ToolkitSource.preview`."""
        headers = self._headers
        return (
            ("cuda", f"{headers.version if headers else self.pins.release} headers"),
            ("nvcc", f"{self.pins.title} for a CUDA {release} variant"),
            ("license", f"{licence.NAME}, accepted by {licence.VARIABLE}"),
        )

    def compiler(self, release: str) -> str | None:
        """See `ToolkitSource.compiler`."""
        own = str(self.pins.release)
        return None if release == own else own

    def provide(self, release: str) -> Toolkit:
        """See `ToolkitSource.provide`."""
        reason = self.refuses(release)
        if reason is not None:
            raise ToolchainError(reason)
        root = self.install().root
        versions, notes = self.preview(release), (self._note(release),)
        return Toolkit(self.name, root, root / "bin" / "nvcc", versions, _DYNAMIC_RUNTIME, notes)

    def install(self) -> Entry:
        """The store entry, made when it is not there.

        Raises:
            ToolchainError: the licence is not accepted, or something cannot be fetched.
        """
        reason = self.refuses(str(self.pins.release))
        headers, recipe = self._headers, self._recipe
        if reason is not None or headers is None or recipe is None:
            raise ToolchainError(str(reason))
        there = self.installer.store.find(recipe)
        if there is not None:
            return there.touch()
        with self.installer.fetcher() as fetcher:
            wheels = CudaMaker(headers, fetcher, self.installer.stubs)
            return self.installer.ensure(
                recipe, DebianNvccMaker(self.pins, wheels, self._debs).make
            )

    def _debs(self) -> list[Path]:
        runner = self.installer.runner
        return fetch(self.pins.shelf, self.cache / "downloads", self.environ, runner)

    @property
    def _headers(self) -> LockedToolkit | None:
        return self.installer.lock.runtimes.get(str(self.pins.release))

    @property
    def _recipe(self) -> Recipe | None:
        return recipe_of(self.pins, self._headers) if self._headers else None

    @property
    def _installed(self) -> bool:
        return self._recipe is not None and self.installer.store.find(self._recipe) is not None

    def _note(self, release: str) -> str:
        """What was used, and which of the release's own archs have no code for it."""
        text = f"compiled by nvcc {self.pins.title} for a CUDA {release} variant"
        missing = self._lost(release)
        if not missing:
            return text
        return f"{text}, without code for {', '.join(missing)}: GPUs of that kind cannot run it"

    def _lost(self, release: str) -> tuple[str, ...]:
        own = arch_table("cuda", self.pins.release).targets
        return tuple(
            arch.removesuffix("+PTX")
            for arch in arch_table("cuda", Version.parse(release)).default
            if arch.removesuffix("+PTX") not in own
        )
