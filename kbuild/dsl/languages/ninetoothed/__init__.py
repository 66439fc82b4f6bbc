"""NineToothed: its code generator writes a Triton function for each entry of `configs`.

The worker merges these functions into one with constants. `complete` adds what follows from
that to the op (grid, arguments, candidates, assumptions); everything after it is Triton's path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kbuild.dsl.languages.ninetoothed.complete import complete_op
from kbuild.dsl.languages.ninetoothed.configs import NineToothedKernel
from kbuild.dsl.languages.triton import Triton
from kbuild.ops.language import LANGUAGES, KernelFunction, pinned_version
from kbuild.ops.model import OpSpec
from kbuild.project.config.issue import IssueCollector
from kbuild.system.version import Version

OLDEST = Version.parse("0.26")
"""Oldest release with the code generator's interface that the worker uses."""
_COMPANIONS = ("sympy==1.14.0", "mpmath==1.3.0")
"""Distributions that its generator imports besides Triton, unless `toolchain` pins them."""


@LANGUAGES.add
class NineToothed(Triton):
    """Kernels with `premake` and `configs`, the arguments of `ninetoothed.build`."""

    name = "ninetoothed"
    decorator = ""
    worker = "ninetoothed.compiler"
    exporter_class = ""
    distributions = ("ninetoothed", "triton")
    options: ClassVar = {"num_warps": "power of two", "num_stages": "number"}
    needs_grid = False
    structured = False
    init_backends = ("cuda",)
    settled = ("configs", "matrix", "grid", "divisible", "ones", "int64")
    has_jit_fallback = False

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version = pinned_version("ninetoothed", pins)
        if version is None:
            return 'pins no exact NineToothed; write `"ninetoothed==0.26.0"` into `toolchain`'
        if Version.parse(version) < OLDEST:
            return f"pins NineToothed {version}; kbuild supports {OLDEST} and later"
        return super().unsupported_reason(pins)

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """See `Language.requirements`."""
        pinned = {pin.partition("==")[0] for pin in pins}
        return (*pins, *(name for name in _COMPANIONS if name.partition("==")[0] not in pinned))

    def complete(
        self, op: OpSpec, functions: Mapping[str, KernelFunction], place: IssueCollector
    ) -> OpSpec | None:
        """See `Language.complete`."""
        kernels = {n: NineToothedKernel.from_json(f.facts) for n, f in functions.items()}
        return complete_op(op, kernels, place)
