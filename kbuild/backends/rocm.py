"""ROCm: gfx architectures, hipcc flags, hipify."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Backend
from kbuild.config.model import KernelSection

_ARCH = re.compile(r"gfx(\d{1,2}[0-9a-f]{2}|\d+(-\d+)*-generic)(:(sramecc|xnack)[+-])*", re.ASCII)


class RocmSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "rocm"`."""

    backend: Literal["rocm"]
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
    definitions = ("USE_ROCM=1",)
    languages = ("CXX", "HIP")
    device_suffixes = (".cu", ".hip")
    arch_key = "rocm-archs"

    def check_arch(self, arch: str) -> None:
        """`gfx942`, `gfx90a:xnack-`, `gfx11-generic`."""
        if not _ARCH.fullmatch(arch):
            raise ValueError(
                f"`{arch}` is not a ROCm architecture; write e.g. `gfx90a` or `gfx942`"
            )
