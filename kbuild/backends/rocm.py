"""ROCm: gfx architectures, hipcc flags, hipify."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Archs, Backend, UnitFlags
from kbuild.project.config.model import KernelSection
from kbuild.system.processes import Runner
from kbuild.system.version import Version


class RocmSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "rocm"`."""

    backend: Literal["rocm"]
    language: Literal["c++"] = "c++"
    """Language of the sources; kernels in Python DSLs have keys of their own."""
    rocm_archs: tuple[StrictStr, ...] | None = None
    """gfx architectures, e.g. `["gfx90a", "gfx942"]`; all supported ones when absent."""
    hip_flags: tuple[StrictStr, ...] = ()
    """HIP compiler flags for `.cu` and `.hip` sources."""


@BACKENDS.add
class Rocm(Backend):
    """AMD GPUs through HIP; CUDA sources are translated by Torch's hipify."""

    name = "rocm"
    other_names = ("hip", "amd", "amdgpu")
    title = "ROCm"
    section = RocmSection
    in_client = True
    has_readable_archs = True
    template = "cuda"  # hipify translates the CUDA sources
    torch_field = "hip"
    visible_devices = "HIP_VISIBLE_DEVICES"
    torch_device = "cuda"
    define = "ROCM_KERNEL"
    dispatch_key = "CUDA"
    definitions = ("USE_ROCM=1", "__HIP_PLATFORM_AMD__=1")
    languages = ("CXX", "HIP")
    device_suffixes = (".cu", ".hip")
    arch_key = "rocm-archs"
    toolkit_headers = ("hip", "cuda", "cub/", "thrust/")

    def check_arch(self, arch: str) -> None:
        """`gfx942`, `gfx90a`: what `--offload-arch` takes, without feature suffixes."""
        _sort_key(arch)

    def native_archs(self, runner: Runner) -> tuple[str, ...]:
        """The archs that ROCm's own tool reports for the GPUs; `gfx000` is the CPU."""
        done = runner.run(("rocm_agent_enumerator",))
        archs = set(done.output.split()) - {"gfx000"} if done.ok else set()
        return tuple(sorted(archs))

    def arch_number(self, arch: str) -> int:
        """`gfx90a` is 0x90a."""
        return int(arch.removeprefix("gfx"), 16)

    def arch_order(self, arch: str) -> tuple[int, int, int]:
        """The version and stepping."""
        return _sort_key(arch)

    def flags(self, section: KernelSection, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """Offload architectures, then `hip-flags`, for device sources; `cxx-flags` for C++."""
        assert isinstance(section, RocmSection)  # noqa: S101 - the registry pairs them
        ((language, codes),) = self.arch_flags(archs, toolkit).by_language
        cxx = super().flags(section, archs, toolkit).by_language
        return UnitFlags((*cxx, (language, (*codes, *section.hip_flags))))

    def arch_flags(self, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """One code object for every architecture."""
        return UnitFlags((("HIP", tuple(f"--offload-arch={arch}" for arch in archs.names)),))

    def binding_flags(self, toolkit: Version | None) -> UnitFlags:
        """The macros that Torch's headers expect of device code."""
        return UnitFlags((("HIP", ("-DCUDA_HAS_FP16=1", "-fno-gpu-rdc")),))

    def libraries(self, framework: str) -> tuple[str, ...]:
        """The HIP runtime, and Torch's HIP libraries for its full ABI."""
        torch = ("torch_hip", "c10_hip") if framework == "torch" else ()
        return (*torch, "hip::host")


MAIN_ARCHS = ("gfx90a", "gfx942", "gfx1100")
"""Archs of kernels in Python DSLs whose section names none."""
_ARCH = re.compile(r"gfx(?P<major>[1-9]\d?)(?P<minor>\d)(?P<stepping>[0-9a-f])")


def is_arch(text: str) -> bool:
    """True for `gfx942`."""
    return _ARCH.fullmatch(text) is not None


def arch_version(arch: str) -> tuple[int, int]:
    """Major and minor."""
    return _sort_key(arch)[:2]


def wavefront(arch: str) -> int:
    """Threads that go together; 64 on GPUs for data centres."""
    return 64 if arch_version(arch)[0] == 9 else 32  # noqa: PLR2004 - GCN and CDNA


def _sort_key(arch: str) -> tuple[int, int, int]:
    """`gfx90a` is 9.0 stepping 10, `gfx1030` is 10.3 stepping 0 (LLVM's AMDGPU naming)."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ValueError(f"`{arch}` is not a ROCm architecture; write e.g. `gfx942`")
    return int(match["major"]), int(match["minor"]), int(match["stepping"], 16)
