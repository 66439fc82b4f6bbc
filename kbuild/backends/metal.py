"""Metal: shaders compiled to an embedded metallib, Objective-C++ hosts."""

from __future__ import annotations

from typing import Literal

from kbuild.backends.base import BACKENDS, Backend
from kbuild.config.model import KernelSection


class MetalSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "metal"`."""

    backend: Literal["metal"]


@BACKENDS.add
class Metal(Backend):
    """Apple GPUs."""

    name = "metal"
    title = "Metal"
    section = MetalSection
    define = "METAL_KERNEL"
    languages = ("CXX", "C", "OBJC", "OBJCXX")
    device_suffixes = (".metal",)
