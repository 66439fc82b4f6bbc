"""ROCm: gfx architectures, hipcc flags, hipify."""

from __future__ import annotations

from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Backend
from kbuild.config.model import KernelSection


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
