"""CPU: plain C++."""

from __future__ import annotations

from typing import Literal

from kbuild.backends.base import BACKENDS, Backend
from kbuild.project.config.model import KernelSection


class CpuSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "cpu"`."""

    backend: Literal["cpu"]
    language: Literal["c++"] = "c++"
    """Language of the sources; kernels in Python DSLs have keys of their own."""


@BACKENDS.add
class Cpu(Backend):
    """C++ for the host's CPU."""

    name = "cpu"
    other_names = ("x86", "x86-64", "aarch64", "arm64", "host")
    title = "CPU"
    section = CpuSection
    in_client = True
    default_on = ("darwin", "linux")
    runs_on_cpu = True
    define = "CPU_KERNEL"
    dispatch_key = "CPU"
    jax_platform = "cpu"
