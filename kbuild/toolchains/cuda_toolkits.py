"""CUDA toolkits: the interface of their sources, and the toolkits installed on this machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kbuild.backends.cuda import NVCC
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.store import StoreEntry
from kbuild.system.version import Version
from kbuild.toolchains.device_compilers import DeviceCompiler, inspect_compiler
from kbuild.toolchains.facts import FactCache, compiler_facts

FIRST_CUDA_MAJOR = 13
"""First release of CUDA that kbuild takes from wheels alone."""
ToolVersions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CudaToolkit:
    """A toolkit that is on this machine."""

    source: str
    root: Path
    nvcc: Path
    versions: ToolVersions
    """Versions for the record: `cuda`, `nvcc`, and whatever else a user should find there."""
    flags: str = ""
    """Flags of nvcc for every unit and for CMake's own tests, as a shell reads them."""
    notes: tuple[str, ...] = ()
    """Remarks for the user on the results, e.g. archs without code."""


class CudaToolkitSource:
    """Base of all ways to obtain a CUDA toolkit; a release is `12.6`."""

    name: ClassVar[str]

    def unsupported_reason(self, release: str) -> str | None:
        """The reason to have no toolkit for that release, in one sentence; asks no network."""
        raise NotImplementedError

    def preview(self, release: str) -> ToolVersions:
        """The versions that `provide` would give; fetches nothing."""
        raise NotImplementedError

    def compiler(self, release: str) -> str | None:
        """Release of nvcc if it is not the requested one; its targets and flags then count."""
        del release
        return None

    def provide(self, release: str) -> CudaToolkit:
        """The toolkit, fetched when it is not there.

        Raises:
            ToolchainError: it cannot be had.
        """
        raise NotImplementedError


class StoredCudaToolkits(CudaToolkitSource):
    """Base of the ways that fetch one toolkit into kbuild's store."""

    @property
    def version(self) -> str:
        """The pinned release, as `kbuild toolchain list` names it."""
        raise NotImplementedError

    def install(self) -> StoreEntry:
        """The store entry, made when it is not there.

        Raises:
            ToolchainError: a licence is not accepted, or something cannot be fetched.
        """
        raise NotImplementedError


def first_source_with(
    sources: Sequence[CudaToolkitSource], release: str
) -> CudaToolkitSource | None:
    """The first source that supports the release."""
    return next((source for source in sources if source.unsupported_reason(release) is None), None)


def missing_toolkit_reason(sources: Sequence[CudaToolkitSource], release: str) -> str:
    """Every source's reason, each once."""
    reasons = (source.unsupported_reason(release) for source in sources)
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


_NVCC_PATCH = re.compile(r"\bV(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class LocalCudaToolkits(CudaToolkitSource):
    """`$CUDA_HOME`, `$CUDA_PATH`, nvcc on PATH, `/usr/local/cuda-12.6`, `/usr/local/cuda`."""

    cache: FactCache
    runner: Runner
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    usual: Path = Path(NVCC.usual_root)
    target: str = ""
    """Folder below `targets` that a toolkit must have to build for another system."""

    name = "local"

    def unsupported_reason(self, release: str) -> str | None:
        """See `CudaToolkitSource.unsupported_reason`."""
        if Version.parse(release).major >= FIRST_CUDA_MAJOR:
            return f"CUDA {release} is taken from wheels"
        if self._find(release):
            return None
        places = f"${', $'.join(NVCC.home_variables)}, PATH or {self.usual}-{release}"
        with_target = f" with targets/{self.target}" if self.target else ""
        return f"none{with_target} is at {places}"

    def preview(self, release: str) -> ToolVersions:
        """See `CudaToolkitSource.preview`."""
        compiler = self._find(release)
        if compiler is None:
            raise ToolchainError(
                f"no CUDA {release} on this machine: {self.unsupported_reason(release)}"
            )
        text = compiler_facts(compiler.program, self.cache, self.runner)["text"]
        patch = _NVCC_PATCH.search(text)
        return (("cuda", release), ("nvcc", f"{patch[1] if patch else release} (local)"))

    def provide(self, release: str) -> CudaToolkit:
        """See `CudaToolkitSource.provide`."""
        versions, compiler = self.preview(release), self._find(release)
        assert compiler is not None  # noqa: S101 - `preview` raises without one
        flags = f"--target-directory={self.target}" if self.target else ""
        return CudaToolkit(self.name, compiler.root, compiler.program, versions, flags)

    def _find(self, release: str) -> DeviceCompiler | None:
        compilers = map(self._nvcc, self._programs(release))
        fitting = (nvcc for nvcc in compilers if nvcc and nvcc.fits(release))
        return next((nvcc for nvcc in fitting if self._has_target(nvcc)), None)

    def _has_target(self, nvcc: DeviceCompiler) -> bool:
        return not self.target or (nvcc.root / "targets" / self.target / "lib").is_dir()

    def _nvcc(self, program: Path) -> DeviceCompiler | None:
        """The nvcc at a path; None if it does not start."""
        with suppress(ToolchainError):
            return inspect_compiler(NVCC, program, self.cache, self.runner)
        return None

    def _programs(self, release: str) -> Iterator[Path]:
        for variable in NVCC.home_variables:
            if self.environ.get(variable):
                yield Path(self.environ[variable], "bin", "nvcc")
        on_path = shutil.which("nvcc", path=self.environ.get("PATH"))
        if on_path:
            yield Path(on_path).resolve()
        for folder in (self.usual.with_name(f"{self.usual.name}-{release}"), self.usual):
            yield folder / "bin" / "nvcc"
