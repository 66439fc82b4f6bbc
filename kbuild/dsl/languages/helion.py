"""Helion: `kbuild capture` has it write Triton kernels, with which everything else is done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from kbuild.dsl.languages.triton import Triton
from kbuild.ops.language import LANGUAGES, ResolvedTargets, pinned_version

RELEASES = re.compile(r"1\.5(\.\d+)*")
"""The releases whose code the capture knows."""
_COMPANIONS = (
    "numpy==2.4.6", "rich==15.0.0", "pygments==2.21.0", "markdown-it-py==4.3.0", "mdurl==0.1.2",
    "pytest==9.0.1", "pluggy==1.6.0", "iniconfig==2.1.0",
)  # fmt: skip
"""Distributions that it imports besides Torch and Triton, unless `toolchain` pins them; pytest is
for `helion._testing`, from which Helion's own examples take the device."""


@LANGUAGES.add
class Helion(Triton):
    """Kernels with `@helion.kernel`, in functions that are captured."""

    name = "helion"
    decorator = "@helion.kernel"
    exporter_class = ""
    distributions = ("helion", "triton")
    init_backends: ClassVar[tuple[str, ...]] = ("cuda",)
    has_jit_fallback = False
    takes_ops = False

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version = pinned_version("helion", pins)
        if version is None:
            return 'pins no exact Helion; write `"helion==1.5.1"` into `toolchain`'
        if not RELEASES.fullmatch(version):
            return f"pins Helion {version}; kbuild supports 1.5"
        return super().unsupported_reason(pins)

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """See `Language.requirements`."""
        pinned = {pin.partition("==")[0] for pin in pins}
        return (*pins, *(name for name in _COMPANIONS if name.partition("==")[0] not in pinned))

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """See `Language.targets`."""
        if backend != "cuda":
            return ResolvedTargets((), (f"Helion's code is captured for CUDA, not for {backend}",))
        return super().targets(backend, archs, toolkit, pins)
