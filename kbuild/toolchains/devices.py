"""Device compilers that are installed on this machine: nvcc, icpx. One finder per backend."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild.run import Runner
from kbuild.toolchains.facts import FactCache, compiler
from kbuild.version import Version

_NVCC_RELEASE = re.compile(r"release (\d+\.\d+)")
_DPCPP_RELEASE = re.compile(r"(\d{4}\.\d+(?:\.\d+)?)")
USUAL_CUDA = Path("/usr/local/cuda")


@dataclass(frozen=True)
class DeviceCompiler:
    """A device compiler that was found."""

    program: Path
    version: Version
    entries: tuple[tuple[str, str], ...]
    """CMake cache entries that make a generated project use it."""
    env: tuple[tuple[str, str], ...] = ()
    has_host_compiler: bool = False
    """True when the host's part of its units is compiled by another compiler, see `nvcc_host`."""

    @property
    def root(self) -> Path:
        """The installation's folder."""
        return self.program.parents[1]

    def fits(self, toolkit: str) -> bool:
        """True when it is the release that a variant names, patch level aside."""
        wanted = Version.parse(toolkit)
        return (self.version.major, self.version.minor) == (wanted.major, wanted.minor)


Finder = Callable[[FactCache, Runner], "DeviceCompiler | None"]


def find_cuda(cache: FactCache, runner: Runner) -> DeviceCompiler | None:
    """nvcc of `$CUDA_HOME` or `$CUDA_PATH`; without them the one on PATH, then the usual place.

    A variable that is set is believed: a toolkit elsewhere is then not looked for.
    """
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        return nvcc_at(Path(named, "bin", "nvcc"), cache, runner)
    on_path = shutil.which("nvcc")
    program = Path(on_path) if on_path else USUAL_CUDA / "bin" / "nvcc"
    return nvcc_at(program.resolve(), cache, runner)


def nvcc_at(program: Path, cache: FactCache, runner: Runner) -> DeviceCompiler | None:
    """That nvcc, when it is one; its toolkit is the folder above its own."""
    if not os.access(program, os.X_OK):
        return None
    release = _NVCC_RELEASE.search(compiler(program, cache, runner)["text"])
    if release is None:
        return None
    root = str(program.parents[1])
    return DeviceCompiler(
        program,
        Version.parse(release[1]),
        (("CMAKE_CUDA_COMPILER", str(program)), ("CUDAToolkit_ROOT", root)),
        (("CUDA_HOME", root),),
        has_host_compiler=True,
    )


def find_dpcpp(cache: FactCache, runner: Runner) -> DeviceCompiler | None:
    """icpx on PATH, where oneAPI's `setvars.sh` puts it; it compiles the host's C++ as well."""
    on_path = shutil.which("icpx")
    if on_path is None:
        return None
    release = _DPCPP_RELEASE.search(compiler(Path(on_path), cache, runner)["text"])
    if release is None:
        return None
    return DeviceCompiler(
        Path(on_path), Version.parse(release[1]), (("CMAKE_CXX_COMPILER", on_path),)
    )


FINDERS: Mapping[str, Finder] = {"cuda": find_cuda, "xpu": find_dpcpp}
"""Backend -> finder; a backend that is absent has no compiler that the host source knows."""
