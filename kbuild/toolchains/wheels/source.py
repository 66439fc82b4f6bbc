"""Toolchains on a machine that has a C++ compiler and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.matrix.selection import host_system
from kbuild.plan import Requirements, ToolchainSummary
from kbuild.run import Runner
from kbuild.store import Entry, Store, store_of
from kbuild.toolchains import build_tools
from kbuild.toolchains.base import Toolchain, ToolchainSource, TorchSupply
from kbuild.toolchains.facts import FactCache, Facts, compiler
from kbuild.toolchains.host import choose_python, clean_environment, cmake_facts, find_cxx
from kbuild.toolchains.manylinux import portability
from kbuild.toolchains.wheels import cuda
from kbuild.toolchains.wheels.installer import Installer, Say
from kbuild.toolchains.wheels.lock import Lock, packaged_lock
from kbuild.toolchains.wheels.settings import IndexSettings
from kbuild.toolchains.wheels.torch import LINK_FOLDER, include_folders

SYSTEM = "x86_64-linux"
BACKENDS = ("cpu", "cuda")
# nvcc and CMake take compilers and flags from these: into objects, without the plan knowing.
_LEAKING = (
    "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDACXX", "CUDAHOSTCXX", "CUDAARCHS",
    "CUDA_ROOT", "CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip


@dataclass(frozen=True)
class Wheels(ToolchainSource):
    """CUDA and Torch from pinned wheels in kbuild's store; C++ by the host's compiler."""

    runner: Runner
    cache: Path
    """kbuild's cache folder."""
    python: Path | None = None
    """Interpreter whose `Python.h` is used; found when None, see `host.choose_python`."""
    say: Say = lambda _: None
    """Told what is fetched."""
    lock: Lock = field(default_factory=packaged_lock)
    settings: IndexSettings | None = None
    """pip's settings when None."""
    supply: TorchSupply | None = None
    """The Torch that is built against instead of the pinned ones."""

    name = "wheels"

    @property
    def store(self) -> Store:
        """Where the entries are."""
        return store_of(self.cache)

    @cached_property
    def installer(self) -> Installer:
        """Fills the store."""
        return Installer(self.runner, self.store, self.lock, self.settings, self.say)

    @cached_property
    def facts(self) -> Facts:
        """The chosen interpreter's facts."""
        return choose_python(self.python, FactCache(self.cache), self.runner)

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`; asks no network."""
        here = str(host_system())
        if requires.system not in (None, SYSTEM) or here != SYSTEM:
            wanted = requires.system or SYSTEM
            return f"needs {wanted}; toolchains from wheels are for {SYSTEM}, and this is {here}"
        if requires.backend not in BACKENDS:
            return f"needs a {requires.backend} compiler; there is none in wheels"
        if requires.libraries:
            return f"needs the headers of {', '.join(requires.libraries)}"
        if requires.tvm_ffi:
            return f"needs apache-tvm-ffi {requires.tvm_ffi}, which is not taken from wheels"
        return self._refuses_toolkit(requires) or self._refuses_torch(requires)

    def _refuses_toolkit(self, requires: Requirements) -> str | None:
        release = requires.toolkit
        if release is None or self.lock.toolkit(release):
            return None
        reason = cuda.refuses(release) or f"pinned are {', '.join(self.lock.cuda)}"
        return f"needs CUDA {release}: {reason}"

    def _refuses_torch(self, requires: Requirements) -> str | None:
        exact = requires.torch_exact
        if requires.torch is None or self.supply is not None:
            return None
        if self.lock.torch_for(requires.torch, exact=exact):
            return None
        at_least = "" if exact else " or newer"
        return f"needs Torch {requires.torch}{at_least}; pinned are {', '.join(self.lock.torch)}"

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`: the pinned versions."""
        versions = [("c++", self._cxx_version(find_cxx()))]
        if requires.toolkit:
            versions.append(("cuda", requires.toolkit))
        if requires.torch and self.supply is not None:
            versions += [("torch", self.supply.facts["version"]), *self.supply.record]
        elif requires.torch:
            pinned = self.lock.torch_for(requires.torch, exact=requires.torch_exact)
            versions.append(("torch", pinned.version if pinned else requires.torch))
        return ToolchainSummary(self.name, tuple(versions), "")

    def _cxx_version(self, cxx: Path) -> str:
        return str(compiler(cxx, FactCache(self.cache), self.runner)["version"])

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`; fetches what the store does not have."""
        reason = self.refuses(requires)
        if reason is not None:
            raise ToolchainError(f"the toolchain from wheels does not fit: {reason}")
        cxx = find_cxx()
        toolkit = self.installer.cuda(requires.toolkit) if requires.toolkit else None
        torch = self._torch(requires)
        links = portability(requires.system, cxx, self.cache, self.runner)
        return Toolchain(
            source=self.name,
            cmake=build_tools.cmake(),
            ninja=build_tools.ninja(),
            python=Path(self.facts["python"]["executable"]),
            cache=(
                ("CMAKE_CXX_COMPILER", str(cxx)),
                *(_cuda_entries(toolkit, cxx) if toolkit else ()),
                *cmake_facts({**self.facts, "torch": torch, "tvm_ffi": None}, requires),
                *links.cache_entries,
            ),
            versions=(*self._versions(requires, cxx, toolkit, torch), *links.versions),
            env=_environment(os.environ, toolkit),
            store=self.store.root,
            redistributable=links.promised,
            notes=(*links.notes, *(self.supply.notes if self.supply and torch else ())),
        )

    def _torch(self, requires: Requirements) -> Facts | None:
        """As `probe.py` gives them of an installed Torch."""
        if requires.torch is None:
            return None
        if self.supply is not None:
            self.supply.provide()
            return self.supply.facts
        torch = self.installer.torch(requires.torch, exact=requires.torch_exact)
        return {
            "version": _version(torch),
            "include_dirs": [str(folder) for folder in include_folders(torch.root)],
            "library_dir": str(torch.root / LINK_FOLDER),
            "cxx11_abi": True,
        }

    def _versions(
        self, requires: Requirements, cxx: Path, toolkit: Entry | None, torch: Facts | None
    ) -> tuple[tuple[str, str], ...]:
        versions = [("c++", self._cxx_version(cxx))]
        if toolkit is not None and requires.toolkit:
            programs = self.lock.cuda[requires.toolkit].programs
            nvcc = next(wheel for wheel in programs if wheel.project == "nvidia-cuda-nvcc")
            versions += [("cuda", _version(toolkit)), ("nvcc", nvcc.version)]
        if torch is not None:
            versions.append(("torch", torch["version"]))
            versions += self.supply.record if self.supply else ()
        return tuple(versions)


def _cuda_entries(toolkit: Entry, cxx: Path) -> tuple[tuple[str, str], ...]:
    return (
        ("CMAKE_CUDA_COMPILER", str(toolkit.root / "bin" / "nvcc")),
        ("CMAKE_CUDA_HOST_COMPILER", str(cxx)),
        ("CUDAToolkit_ROOT", str(toolkit.root)),
    )


def _environment(environ: Mapping[str, str], toolkit: Entry | None) -> dict[str, str]:
    kept = {key: value for key, value in environ.items() if key not in _LEAKING}
    home = dict.fromkeys(("CUDA_HOME", "CUDA_PATH"), str(toolkit.root)) if toolkit else {}
    return clean_environment(kept) | home


def _version(entry: Entry) -> str:
    return str(entry.facts["recipe"]["version"])
