"""Metal: shaders compiled to an embedded metallib, Objective-C++ hosts."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from kbuild.backends.base import BACKENDS, Archs, Backend, UnitFlags
from kbuild.project.config.model import KernelSection
from kbuild.system.version import Version


class MetalSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "metal"`."""

    backend: Literal["metal"]


@BACKENDS.add
class Metal(Backend):
    """Apple GPUs.

    All shaders of an extension become one library, embedded in a header that hosts include as
    `EMBEDDED_METALLIB_HEADER`; `EMBEDDED_METALLIB_NAMESPACE::createLibrary(device, &error)` loads
    it. Both names are fixed, so a new op namespace recompiles no host.
    """

    name = "metal"
    other_names = ("mps", "apple", "macos")
    title = "Metal"
    section = MetalSection
    in_client = True
    default_on = ("darwin",)
    torch_device = "mps"
    define = "METAL_KERNEL"
    dispatch_key = "MPS"
    definitions = (
        'EMBEDDED_METALLIB_HEADER="embedded_metallib.h"',
        "EMBEDDED_METALLIB_NAMESPACE=embedded_metallib",
    )
    languages = ("CXX", "OBJC", "OBJCXX", "METAL")
    device_suffixes = (".metal",)

    def flags(self, section: KernelSection, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """`cxx-flags` for C++ and for Objective-C++."""
        flags = section.cxx_flags
        return UnitFlags((("CXX", flags), ("OBJCXX", flags)) if flags else ())

    def libraries(self, framework: str) -> tuple[str, ...]:
        """The system frameworks that hosts use."""
        return ("-framework Foundation", "-framework Metal")

    def language_of(self, source: str) -> str | None:
        """Objective-C by suffix, and the shaders."""
        suffix = PurePosixPath(source).suffix
        return {".m": "OBJC", ".mm": "OBJCXX"}.get(suffix) or super().language_of(source)
