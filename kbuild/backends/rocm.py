"""ROCm: gfx architectures, hipcc flags, hipify."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Archs, Backend, UnitFlags
from kbuild.config.model import KernelSection
from kbuild.matrix import arch_table
from kbuild.runtime.processes import Runner
from kbuild.version import Version


class RocmSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "rocm"`."""

    backend: Literal["rocm"]
    language: Literal["c++"] = "c++"
    """What the sources are written in; kernels in Python DSLs have keys of their own."""
    rocm_archs: tuple[StrictStr, ...] | None = None
    """gfx architectures, e.g. `["gfx90a", "gfx942"]`; all supported ones when absent."""
    hip_flags: tuple[StrictStr, ...] = ()
    """HIP compiler flags for `.cu` and `.hip` sources."""


@BACKENDS.add
class Rocm(Backend):
    """AMD GPUs through HIP; CUDA sources are translated by Torch's hipify."""

    name = "rocm"
    title = "ROCm"
    section = RocmSection
    define = "ROCM_KERNEL"
    dispatch_key = "CUDA"
    definitions = ("USE_ROCM=1", "__HIP_PLATFORM_AMD__=1")
    languages = ("CXX", "HIP")
    device_suffixes = (".cu", ".hip")
    arch_key = "rocm-archs"

    def check_arch(self, arch: str) -> None:
        """`gfx942`, `gfx90a`: what `--offload-arch` takes, without feature suffixes."""
        _sort_key(arch)

    def native_archs(self, runner: Runner) -> tuple[str, ...]:
        """What ROCm's own tool says of the GPUs; `gfx000` is the CPU."""
        done = runner.run(("rocm_agent_enumerator",))
        found = set(done.output.split()) - {"gfx000"} if done.ok else set()
        return tuple(sorted(found))

    def archs(self, requested: Sequence[str] | None, toolkit: Version | None) -> Archs:
        """Every requested architecture that is supported, by exact name."""
        table = arch_table(self.name, toolkit)
        wanted = sorted(set(requested or table.default), key=_sort_key)
        kept = tuple(arch for arch in wanted if arch in table.targets)
        release = f"ROCm {toolkit}" if toolkit else "ROCm"
        if not kept:
            named = ", ".join(f"`{arch}`" for arch in wanted)
            known = ", ".join(table.targets)
            raise ValueError(f"none of {named} is a target of {release}, which has {known}")
        dropped = (arch for arch in wanted if arch not in kept)
        return Archs(
            kept, tuple(f"`{arch}` is left out: not a target of {release}" for arch in dropped)
        )

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
        """What Torch's headers expect of device code."""
        return UnitFlags((("HIP", ("-DCUDA_HAS_FP16=1", "-fno-gpu-rdc")),))

    def libraries(self, framework: str) -> tuple[str, ...]:
        """The HIP runtime, and Torch's HIP libraries for its full ABI."""
        torch = ("torch_hip", "c10_hip") if framework == "torch" else ()
        return (*torch, "hip::host")


_ARCH = re.compile(r"gfx(?P<major>\d{1,2})(?P<minor>\d)(?P<stepping>[0-9a-f])")


def _sort_key(arch: str) -> tuple[int, int, int]:
    """`gfx90a` is 9.0 stepping 10, `gfx1030` is 10.3 stepping 0 (LLVM's AMDGPU naming)."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ValueError(f"`{arch}` is not a ROCm architecture: write e.g. `gfx942`")
    return int(match["major"]), int(match["minor"]), int(match["stepping"], 16)
