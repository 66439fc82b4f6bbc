"""The toolchain `debian-nvcc`: CUDA 12 without an installed toolkit.

Debian's nvcc 12.4 compiles, with headers from wheels. Opt-in: the compiler is under NVIDIA's
licence, and its release is not the one that a variant is named after. An installed toolkit of that
release is preferred, see `kbuild.toolchains.cuda_toolkits`.

`scripts/refresh_debian_nvcc.py` writes `data/packages.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kbuild.plan.plan import Requirements, ToolchainSummary
from kbuild.plugins.debian.packages import (
    DebianPackage,
    PackageSet,
    UnpackRules,
    fetch_packages,
    missing_downloader_reason,
    unpack_deb,
)
from kbuild.project.matrix import arch_table
from kbuild.system.errors import ToolchainError
from kbuild.system.store import Recipe, StoreEntry, open_store
from kbuild.system.version import Version
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.cuda_toolkits import CudaToolkit, StoredCudaToolkits, ToolVersions
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.wheels.cuda import CudaMaker, cuda_recipe
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import LockedToolkit

_DATA = resources.files("kbuild.plugins.debian") / "data"
_DATA_FILES = ("packages.json", "layout.toml", "nvcc.profile")


@dataclass(frozen=True)
class DebianNvccPins:
    """Everything of Debian's that a store entry is made from."""

    suite: str
    nvcc: str
    """`12.4.131`."""
    packages: tuple[DebianPackage, ...]
    digest: str
    """SHA-256 over all data files: another digest, another store entry."""

    @property
    def release(self) -> Version:
        """`12.4`."""
        parts = self.nvcc.split(".")
        return Version((int(parts[0]), int(parts[1])))

    @property
    def package_set(self) -> PackageSet:
        """The packages that are fetched."""
        return PackageSet(self.suite, self.packages, "install the CUDA toolkit and set CUDA_HOME")

    @property
    def title(self) -> str:
        """Title for the record."""
        return f"{self.nvcc} (Debian {self.suite})"


@cache
def pins() -> DebianNvccPins:
    """The package that this kbuild was tried with."""
    data = json.loads(data_text("packages.json"))
    packages = tuple(DebianPackage(**package) for package in data.pop("packages"))
    content = "\0".join(data_text(name) for name in _DATA_FILES)
    return DebianNvccPins(
        **data, packages=packages, digest=hashlib.sha256(content.encode()).hexdigest()
    )


def data_text(name: str) -> str:
    """Text of a data file."""
    return (_DATA / name).read_text("utf-8")


@cache
def unpack_rules() -> UnpackRules:
    """The rules for the places of the package's files."""
    return UnpackRules.parse(data_text("layout.toml"))


LICENCE_VARIABLE = "KBUILD_ACCEPT_LICENSE"
"""Names of licences that the user accepts, separated by commas."""
LICENCE_NAME = "nvidia-cuda-eula"
LICENCE_TITLE = "NVIDIA's End User License Agreement for the CUDA Toolkit"
LICENCE_URL = "https://docs.nvidia.com/cuda/eula/"


def is_licence_accepted(environ: Mapping[str, str]) -> bool:
    """True when the variable names the licence."""
    return LICENCE_NAME in {name.strip() for name in environ.get(LICENCE_VARIABLE, "").split(",")}


def licence_instruction() -> str:
    """The remedy, for the sentence of a refusal."""
    setting = f"{LICENCE_VARIABLE}={LICENCE_NAME}"
    return f"read {LICENCE_TITLE} ({LICENCE_URL}), and set {setting} to accept it"


_LAYOUT = 1
"""Counts changes of what `make` does with the same inputs."""
_EMPTY_ARCHIVE = b"!<arch>\n"


def nvcc_recipe(pins: DebianNvccPins, headers: LockedToolkit) -> Recipe:
    """The package and the wheels, and how they are put together."""
    inputs = {"layout": _LAYOUT, "debian": pins.digest, "wheels": cuda_recipe(headers).to_json()}
    return Recipe("debian-nvcc", pins.nvcc, inputs)


@dataclass(frozen=True)
class DebianNvccMaker:
    """Makes the prefix."""

    pins: DebianNvccPins
    wheels: CudaMaker
    debs: Callable[[], list[Path]]
    """Fetches the packages."""

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the prefix; see `kbuild.system.store.MakeEntry`."""
        facts = self.wheels.make(root)
        for deb in self.debs():
            unpack_deb(deb, root, unpack_rules().destination)
        (root / "bin" / "nvcc.profile").write_text(data_text("nvcc.profile"))
        # Relocatable device code is not linked; nvcc names the library all the same.
        (root / "lib" / "libcudadevrt.a").write_bytes(_EMPTY_ARCHIVE)
        packages = [
            {
                "filename": package.file,
                "sha256": package.sha256,
                "size": package.size,
                "fetched": package.size,
                "how": "apt",
            }
            for package in self.pins.packages
        ]
        return {"sources": [*facts["sources"], *packages], "license": LICENCE_NAME}


_DYNAMIC_RUNTIME = "--cudart=shared"  # wheels have no libcudart_static.a


@dataclass(frozen=True)
class DebianNvccToolkits(StoredCudaToolkits):
    """One nvcc for several releases: its code runs with any later runtime of CUDA 12."""

    installer: WheelInstaller
    cache: Path
    """kbuild's cache folder."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    pins: DebianNvccPins = field(default_factory=pins)

    name = "debian-nvcc"

    @property
    def version(self) -> str:
        """See `StoredCudaToolkits.version`."""
        return self.pins.nvcc

    def unsupported_reason(self, release: str) -> str | None:
        """See `CudaToolkitSource.unsupported_reason`."""
        own, wanted = self.pins.release, Version.parse(release)
        if wanted.major != own.major or wanted < own:
            return f"debian-nvcc is for CUDA {own.major}, from {own} on"
        if self._headers is None:
            return f"the lock of toolchains has no headers of CUDA {own}"
        if not is_licence_accepted(self.environ):
            return f"to use nvcc {self.pins.title}, {licence_instruction()}"
        return None if self._installed else missing_downloader_reason()

    def preview(self, release: str) -> ToolVersions:
        """See `CudaToolkitSource.preview`."""
        headers = self._headers
        return (
            ("cuda", f"{headers.version if headers else self.pins.release} headers"),
            ("nvcc", f"{self.pins.title} for a CUDA {release} variant"),
            ("license", f"{LICENCE_NAME}, accepted by {LICENCE_VARIABLE}"),
        )

    def compiler(self, release: str) -> str | None:
        """See `CudaToolkitSource.compiler`."""
        own = str(self.pins.release)
        return None if release == own else own

    def provide(self, release: str) -> CudaToolkit:
        """See `CudaToolkitSource.provide`."""
        reason = self.unsupported_reason(release)
        if reason is not None:
            raise ToolchainError(reason)
        root = self.install().root
        versions, notes = self.preview(release), (self._note(release),)
        return CudaToolkit(
            self.name, root, root / "bin" / "nvcc", versions, _DYNAMIC_RUNTIME, notes
        )

    def install(self) -> StoreEntry:
        """The store entry, made when it is not there.

        Raises:
            ToolchainError: the licence is not accepted, or something cannot be fetched.
        """
        reason = self.unsupported_reason(str(self.pins.release))
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
        return fetch_packages(self.pins.package_set, self.cache / "downloads", self.environ, runner)

    @property
    def _headers(self) -> LockedToolkit | None:
        return self.installer.lock.runtimes.get(str(self.pins.release))

    @property
    def _recipe(self) -> Recipe | None:
        return nvcc_recipe(self.pins, self._headers) if self._headers else None

    @property
    def _installed(self) -> bool:
        return self._recipe is not None and self.installer.store.find(self._recipe) is not None

    def _note(self, release: str) -> str:
        """The remark on what was used, and which of the release's own archs have no code for it."""
        text = f"compiled by nvcc {self.pins.title} for a CUDA {release} variant"
        own = arch_table("cuda", self.pins.release).targets
        missing = tuple(
            arch.removesuffix("+PTX")
            for arch in arch_table("cuda", Version.parse(release)).default
            if arch.removesuffix("+PTX") not in own
        )
        if not missing:
            return text
        return f"{text}, without code for {', '.join(missing)}: GPUs of that kind cannot run it"


@dataclass(frozen=True)
class DebianNvccToolchains(ToolchainSource):
    """Debian's nvcc for device code, also where a local toolkit would fit; wheels for the rest."""

    wheels: WheelToolchains
    """Has Debian's toolkits and no others."""
    toolkits: DebianNvccToolkits

    name = "debian-nvcc"

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`."""
        if requires.backend != "cuda" or requires.toolkit is None:
            return "debian-nvcc compiles for CUDA only"
        reason = self.toolkits.unsupported_reason(requires.toolkit)
        if reason is not None:
            return f"needs CUDA {requires.toolkit}: {reason}"
        return self.wheels.unsupported_reason(requires)

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`."""
        return self.wheels.preview(requires)

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        return self.wheels.compiler(requires)

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        reason = self.unsupported_reason(requires)
        if reason is not None:
            raise ToolchainError(f"debian-nvcc does not fit: {reason}")
        return self.wheels.provision(requires)


class DebianNvcc:
    """See `kbuild.toolchains.plugins.ToolchainPlugin`."""

    def __call__(self, host: HostToolchains) -> DebianNvccToolchains:
        """The source for a command line."""
        cache, downloads = host.cache.folder, host.downloads
        installer = WheelInstaller(host.runner, open_store(cache), downloads=downloads)
        toolkits = self.cuda_toolkits(installer, cache)
        wheels = WheelToolchains(host.runner, cache, host.python, downloads, others=(toolkits,))
        return DebianNvccToolchains(wheels, toolkits)

    def cuda_toolkits(self, installer: WheelInstaller, cache: Path) -> DebianNvccToolkits:
        """Debian's nvcc for CUDA 12, in kbuild's store."""
        return DebianNvccToolkits(installer, cache)


PLUGIN = DebianNvcc()
