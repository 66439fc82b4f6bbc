"""CUDA: compute capabilities, nvcc flags, toolkit bounds."""

from __future__ import annotations

from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Backend
from kbuild.config.model import BackendGeneral, KernelSection, VersionText


class CudaGeneral(BackendGeneral):
    """The `[general.cuda]` table."""

    minver: VersionText | None = None
    """Oldest CUDA release to build for, inclusive."""
    maxver: VersionText | None = None
    """Newest CUDA release to build for, inclusive."""


class CudaSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "cuda"`."""

    backend: Literal["cuda"]
    cuda_capabilities: tuple[StrictStr, ...] | None = None
    """Compute capabilities, e.g. `["8.0", "9.0a", "12.0+PTX"]`; the toolkit's when absent."""
    cuda_flags: tuple[StrictStr, ...] = ()
    """nvcc flags for `.cu` sources."""
    cuda_minver: VersionText | None = None
    """Leave this kernel out below this CUDA release."""


@BACKENDS.add
class Cuda(Backend):
    """NVIDIA GPUs through nvcc."""

    name = "cuda"
    title = "CUDA"
    section = CudaSection
    general = CudaGeneral
    define = "CUDA_KERNEL"
    definitions = ("USE_CUDA=1",)
    languages = ("CXX", "CUDA")
    device_suffixes = (".cu",)
    arch_key = "cuda-capabilities"
