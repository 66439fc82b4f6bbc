"""XPU: SYCL through Intel's DPC++."""

from __future__ import annotations

from typing import Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Backend
from kbuild.config.model import BackendGeneral, KernelSection


class XpuGeneral(BackendGeneral):
    """The `[general.xpu]` table."""


class XpuSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "xpu"`."""

    backend: Literal["xpu"]
    sycl_flags: tuple[StrictStr, ...] = ()
    """DPC++ flags for `.cpp`, `.cc` and `.cxx` sources."""


@BACKENDS.add
class Xpu(Backend):
    """Intel GPUs through SYCL."""

    name = "xpu"
    title = "XPU"
    section = XpuSection
    general = XpuGeneral
    define = "XPU_KERNEL"
    definitions = ("USE_XPU",)
