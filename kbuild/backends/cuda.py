"""CUDA: compute capabilities, nvcc flags, toolkit bounds."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Backend
from kbuild.config.model import BackendGeneral, KernelSection, VersionText

_CAPABILITY = re.compile(r"(\d+)\.\d[af]?(\+PTX)?", re.ASCII)
_NUMBER = re.compile(r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)([af]?)", re.ASCII | re.IGNORECASE)
# Majors that a CUDA release ever had or may get soon; anything else is a slip of the keyboard.
_MAJORS = range(3, 20)


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

    def check_arch(self, arch: str) -> None:
        """`9.0`, `9.0a`, `10.0f`, each with `+PTX` or without."""
        match = _CAPABILITY.fullmatch(arch)
        if match and int(match[1]) in _MAJORS:
            return
        guess = _NUMBER.fullmatch(arch)
        meant = f"{guess[1]}.{guess[2]}{guess[3].lower()}" if guess and not match else ""
        hint = f"did you mean `{meant}`?" if meant else "write e.g. `9.0`, `9.0a` or `12.0+PTX`"
        raise ValueError(f"`{arch}` is not a CUDA capability; {hint}")
