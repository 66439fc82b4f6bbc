"""The toolchain source `wheels`: CUDA, Torch and TVM-FFI from wheels, C++ from the host."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from operator import add
from pathlib import Path
from typing import TypeVar

from kbuild.backends import BACKENDS
from kbuild.plan.plan import Requirements, ToolchainSummary
from kbuild.project.variant import System, host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256_of_file
from kbuild.system.processes import Runner
from kbuild.system.progress import Downloads
from kbuild.system.store import Recipe, Store, open_store
from kbuild.toolchains import build_tools
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.cuda_toolkits import (
    CudaToolkit,
    CudaToolkitSource,
    ToolVersions,
    first_source_with,
    missing_toolkit_reason,
)
from kbuild.toolchains.device_compilers import nvcc_host_compiler
from kbuild.toolchains.facts import FactCache, Facts, compiler_facts
from kbuild.toolchains.host import choose_python, clean_environment, cmake_facts
from kbuild.toolchains.manylinux.environment import manylinux_linking
from kbuild.toolchains.wheels import cuda, frameworks
from kbuild.toolchains.wheels.frameworks import TORCH_LINK_FOLDER, torch_include_folders
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import ToolchainLock, packaged_lock
from kbuild.toolchains.wheels.package_index import UnreachableIndexError
from kbuild.toolchains.wheels.settings import IndexSettings

T = TypeVar("T")


@dataclass(frozen=True)
class WheelCudaToolkits(CudaToolkitSource):
    """The toolkits that the lock pins."""

    installer: WheelInstaller
    cross: str | None = None

    name = "wheels"

    def unsupported_reason(self, release: str) -> str | None:
        """See `CudaToolkitSource.unsupported_reason`."""
        lock = self.installer.lock
        if release in lock.cuda:
            pins = self.installer.crossing(self.cross).lock if self.cross else lock
            return None if release in pins.cuda else f"no libraries for {self.cross} are pinned"
        return cuda.unsupported_release_reason(release) or f"pinned are {', '.join(lock.cuda)}"

    def preview(self, release: str) -> ToolVersions:
        """See `CudaToolkitSource.preview`."""
        return (("cuda", release),)

    def provide(self, release: str) -> CudaToolkit:
        """See `CudaToolkitSource.provide`."""
        cross = self.cross
        entry = self.installer.cross_cuda(release, cross) if cross else self.installer.cuda(release)
        programs = self.installer.lock.cuda[release].programs
        nvcc = next(wheel for wheel in programs if wheel.project == "nvidia-cuda-nvcc")
        versions = (("cuda", entry.version), ("nvcc", nvcc.version))
        flags = f"--target-directory={cuda.CROSS_TARGET}" if cross else ""
        return CudaToolkit(self.name, entry.root, entry.root / "bin" / "nvcc", versions, flags)


SYSTEM = "x86_64-linux"
# nvcc and CMake take compilers and flags from these: into objects, without the plan knowing.
_NVCC_VARIABLES = (
    "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDACXX", "CUDAHOSTCXX", "CUDAARCHS",
    "CUDA_ROOT", "CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip


@dataclass(frozen=True)
class WheelToolchains(ToolchainSource):
    """CUDA and Torch from pinned wheels in kbuild's store; C++ by the host's compiler.

    With `cross`, results are for that system: C++ is compiled by a cross compiler, against Torch
    and the CUDA runtime of its wheels.
    """

    runner: Runner
    cache: Path
    python: Path | None = None
    """Interpreter whose `Python.h` is used; found when None, see `host.choose_python`."""
    downloads: Downloads = field(default_factory=Downloads)
    lock: ToolchainLock = field(default_factory=packaged_lock)
    settings: IndexSettings | None = None
    """pip's settings when None."""
    others: tuple[CudaToolkitSource, ...] = ()
    """Sources of CUDA toolkits that no wheels make, the best first."""
    cross: str | None = None

    name = "wheels"
    backends = ("cuda",)

    def is_for(self, backend: str) -> bool:
        """CUDA, and what the host's C++ compiler builds against any Torch."""
        known = BACKENDS.get(backend)
        return super().is_for(backend) or (known.is_plain_cxx and not known.torch_field)

    @property
    def store(self) -> Store:
        """The store of the entries."""
        return open_store(self.cache)

    @cached_property
    def installer(self) -> WheelInstaller:
        """Fills the store."""
        return WheelInstaller(self.runner, self.store, self.lock, self.settings, self.downloads)

    @cached_property
    def frameworks(self) -> WheelInstaller:
        """Fills the store with Torch and TVM-FFI of the results' system."""
        return self.installer.crossing(self.cross) if self.cross else self.installer

    @cached_property
    def facts(self) -> Facts:
        """The chosen interpreter's facts."""
        facts = choose_python(self.python, FactCache(self.cache), self.runner)
        return facts if self.cross is None else cross_python(facts, self.cross, self.store)

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`; asks no network."""
        if reason := self._unsupported_system_reason(requires):
            return reason
        if not self.is_for(requires.backend):
            return f"needs a {requires.backend} compiler; there is none in wheels"
        if requires.libraries:
            return f"needs the headers of {', '.join(requires.libraries)}"
        if requires.toolkit is not None and self._toolkit_source(requires) is None:
            reason = missing_toolkit_reason(self._toolkits, requires.toolkit)
            return f"needs CUDA {requires.toolkit}: {reason}"
        return self._unsupported_torch_reason(requires) or self._unsupported_tvm_ffi_reason(
            requires
        )

    def _unsupported_system_reason(self, requires: Requirements) -> str | None:
        here = str(host_system())
        if self.cross is not None and here == SYSTEM:
            system = System.parse(self.cross)
            if system.os != "linux" or system.cpu not in self.lock.cross:
                return f"needs {system}; no toolchain from wheels builds for it on {here}"
            if requires.system == self.cross and build_tools.find_cross_cxx(system) is None:
                package = build_tools.cross_package(system)
                return f"needs a C++ compiler for {system}; install {package}"
        if requires.system not in (None, self.cross or SYSTEM) or here != SYSTEM:
            wanted = requires.system or SYSTEM
            return f"needs {wanted}; toolchains from wheels are for {SYSTEM}, and this is {here}"
        return None

    @property
    def _toolkits(self) -> tuple[CudaToolkitSource, ...]:
        return (WheelCudaToolkits(self.installer, self.cross), *self.others)

    def _toolkit_source(self, requires: Requirements) -> CudaToolkitSource | None:
        return first_source_with(self._toolkits, requires.toolkit) if requires.toolkit else None

    def _unsupported_torch_reason(self, requires: Requirements) -> str | None:
        exact = requires.torch_exact
        if requires.torch is None:
            return None
        pins = self.frameworks.lock
        if pins.torch_for(requires.torch, exact=exact):
            return None
        at_least = "" if exact else " or newer"
        return f"needs Torch {requires.torch}{at_least}; the lock pins {', '.join(pins.torch)}"

    def _unsupported_tvm_ffi_reason(self, requires: Requirements) -> str | None:
        pins = self.frameworks.lock
        if requires.tvm_ffi is None or requires.tvm_ffi in pins.tvm_ffi:
            return None
        pinned = ", ".join(pins.tvm_ffi) or "none"
        return f"needs apache-tvm-ffi {requires.tvm_ffi}; the lock pins {pinned}"

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`: the pinned versions."""
        versions = [("c++", self._cxx_version(build_tools.find_cxx(self.cross)))]
        toolkits = self._toolkit_source(requires)
        if toolkits and requires.toolkit:
            versions += toolkits.preview(requires.toolkit)
        if requires.torch:
            pinned = self.frameworks.lock.torch_for(requires.torch, exact=requires.torch_exact)
            versions.append(("torch", pinned.version if pinned else requires.torch))
        if requires.tvm_ffi:
            versions.append(
                (frameworks.TVM_FFI_PROJECT, self.frameworks.lock.tvm_ffi[requires.tvm_ffi].version)
            )
        return ToolchainSummary(self.name, tuple(versions), "")

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        toolkits = self._toolkit_source(requires)
        return toolkits.compiler(requires.toolkit) if toolkits and requires.toolkit else None

    def _cxx_version(self, cxx: Path) -> str:
        return str(compiler_facts(cxx, FactCache(self.cache), self.runner)["version"])

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`; fetches what the store does not have."""
        reason = self.unsupported_reason(requires)
        if reason is not None:
            raise ToolchainError(f"the toolchain from wheels does not fit: {reason}")
        cxx = build_tools.find_cxx(self.cross)
        toolkit, torch, ffi = self._fetch(requires)
        links = manylinux_linking(requires.system, cxx, self.cache, self.runner)
        kept = {key: value for key, value in os.environ.items() if key not in _NVCC_VARIABLES}
        home = dict.fromkeys(("CUDA_HOME", "CUDA_PATH"), str(toolkit.root)) if toolkit else {}
        return Toolchain(
            source=self.name,
            cmake=build_tools.cmake(),
            ninja=build_tools.ninja(),
            python=Path(self.facts["python"]["executable"]),
            cache=(
                *(_cross_entries(self.cross) if self.cross else ()),
                ("CMAKE_CXX_COMPILER", str(cxx)),
                *(self._cuda_entries(toolkit, cxx) if toolkit else ()),
                *cmake_facts({**self.facts, "torch": torch, "tvm_ffi": ffi}, requires),
                *links.cache_entries,
            ),
            versions=(
                *self._versions(cxx, toolkit, torch),
                *(((frameworks.TVM_FFI_PROJECT, ffi["version"]),) if ffi else ()),
                *links.versions,
            ),
            env=clean_environment(kept) | home,
            store=self.store.root,
            redistributable=links.promised,
            notes=(
                *links.notes,
                *(toolkit.notes if toolkit else ()),
            ),
        )

    def _fetch(
        self, requires: Requirements
    ) -> tuple[CudaToolkit | None, Facts | None, Facts | None]:
        """Toolkit, Torch and TVM-FFI.

        Raises:
            UnreachableIndexError: with all that is missing.
            ToolchainError: one of them cannot be had.
        """
        unreachable: list[UnreachableIndexError] = []

        def attempt(get: Callable[[Requirements], T]) -> T | None:
            try:
                return get(requires)
            except UnreachableIndexError as error:
                unreachable.append(error)
                return None

        fetched = attempt(self._toolkit), attempt(self._torch), attempt(self._tvm_ffi)
        if unreachable:
            # One error with all that is missing, so that a user without a network fetches it in one
            # go.
            raise reduce(add, unreachable)
        return fetched

    def _toolkit(self, requires: Requirements) -> CudaToolkit | None:
        toolkits = self._toolkit_source(requires)
        return toolkits.provide(requires.toolkit) if toolkits and requires.toolkit else None

    def _torch(self, requires: Requirements) -> Facts | None:
        """The facts that `probe.py` gives of an installed Torch."""
        if requires.torch is None:
            return None
        torch = self.frameworks.torch(
            requires.torch, exact=requires.torch_exact, for_device=requires.toolkit is not None
        )
        return {
            "version": torch.version,
            "include_dirs": [str(folder) for folder in torch_include_folders(torch.root)],
            "library_dir": str(torch.root / TORCH_LINK_FOLDER),
            "cxx11_abi": True,  # every release that is pinned is built so
        }

    def _tvm_ffi(self, requires: Requirements) -> Facts | None:
        """The facts that `probe.py` gives of an installed TVM-FFI."""
        if requires.tvm_ffi is None:
            return None
        entry = self.frameworks.tvm_ffi(requires.tvm_ffi)
        return {
            "version": entry.version,
            "include_dirs": [str(entry.root / frameworks.TVM_FFI_INCLUDE_FOLDER)],
            "library_dir": str(entry.root / frameworks.TVM_FFI_LINK_FOLDER),
        }

    def _versions(
        self, cxx: Path, toolkit: CudaToolkit | None, torch: Facts | None
    ) -> tuple[tuple[str, str], ...]:
        versions = [("c++", self._cxx_version(cxx))]
        if toolkit is not None:
            versions += toolkit.versions
            other = self._host_compiler(toolkit, cxx)
            if other != cxx:
                versions.append(("c++ of nvcc", self._cxx_version(other)))
        if torch is not None:
            versions.append(("torch", torch["version"]))
        return tuple(versions)

    def _host_compiler(self, toolkit: CudaToolkit, cxx: Path) -> Path:
        return nvcc_host_compiler(toolkit.root, cxx, FactCache(self.cache), self.runner)

    def _cuda_entries(self, toolkit: CudaToolkit, cxx: Path) -> tuple[tuple[str, str], ...]:
        flags = (("CMAKE_CUDA_FLAGS", toolkit.flags),) if toolkit.flags else ()
        return (
            ("CMAKE_CUDA_COMPILER", str(toolkit.nvcc)),
            ("CMAKE_CUDA_HOST_COMPILER", str(self._host_compiler(toolkit, cxx))),
            ("CUDAToolkit_ROOT", str(toolkit.root)),
            *flags,
        )


_PYTHON_CONFIG = "pyconfig.h"


def _cross_entries(system: str) -> tuple[tuple[str, str], ...]:
    """The cache entries by which CMake knows that it builds for another processor."""
    return (("CMAKE_SYSTEM_NAME", "Linux"), ("CMAKE_SYSTEM_PROCESSOR", System.parse(system).cpu))


def cross_python(facts: Facts, system: str, store: Store) -> Facts:
    """The facts of an interpreter, with headers that the cross compiler can read.

    Debian's `pyconfig.h` includes one of the processor, which is there for this machine's alone.
    Extensions for the limited API need nothing in it that differs between 64-bit processors.
    """
    include = Path(facts["python"]["include_dir"])
    config = include.parent / f"{host_system().cpu}-linux-gnu" / include.name / _PYTHON_CONFIG
    if not config.is_file():
        return facts
    place = f"{System.parse(system).cpu}-linux-gnu/{include.name}/{_PYTHON_CONFIG}"
    recipe = Recipe("python-config", include.name, {"sha256": sha256_of_file(config), "as": place})
    entry = store.ensure(recipe, partial(_copy_config, config, place))
    return {**facts, "python": {**facts["python"], "include_dir": f"{include};{entry.root}"}}


def _copy_config(config: Path, place: str, root: Path) -> dict[str, object]:
    target = root / place
    target.parent.mkdir(parents=True)
    target.write_bytes(config.read_bytes())
    return {"sources": []}
