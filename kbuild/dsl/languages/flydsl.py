"""FlyDSL, experimental: its targets, and the request to the worker for one unit.

Its objects are compiled and checked; none was ever run on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.language import (
    LANGUAGES,
    Language,
    LinkInputs,
    ResolvedTargets,
    constants_of,
    pinned_version,
    rocm_targets,
    with_companions,
)
from kbuild.ops.steps import ArgumentSource
from kbuild.ops.tensor_layout import tensor_layout
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.errors import BuildError

DISTRIBUTION = "flydsl"
RELEASE = "0.4.2"
"""The only supported release: the worker reads parts of the DSL that are not public."""
_PIN = f"{DISTRIBUTION}=={RELEASE}"
_COMPANIONS = ("numpy==2.4.6", "typing-extensions==4.16.0")
"""Nothing is resolved when an environment is made. The worker stands in for Torch."""
_ARCHS = (
    *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101"),
    *("gfx1150", "gfx1151", "gfx1200", "gfx1201", "gfx1250"),
)
"""Archs whose code was compiled without a GPU, and linked by LLD 19."""


def _argument(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    if source.kind == "tensor":
        return tensor_layout(name, source, unit, bound)
    if source.kind not in ("int", "float", "bool"):
        what = f"`{bound.function}` takes no {source.kind} as `{name}`"
        raise BuildError(what, hint="pass tensors and numbers")
    if {name} & {*unit.divisible, *unit.ones}:
        what = f"`{bound.function}`: nothing can be assumed about the number `{name}`"
        hint = "`divisible` has dimensions and strides, `x.stride.0`, and `ones` strides"
        raise BuildError(what, hint=hint)
    return {"name": name, "kind": source.kind}


@LANGUAGES.add
class FlyDsl(Language):
    """Kernels that a function with `@flyc.jit` launches."""

    name = "flydsl"
    decorator = "@flyc.jit"
    worker = "flydsl"
    distributions = (DISTRIBUTION,)
    needs_grid = False
    has_host_code = True
    shaped = True

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version = pinned_version(DISTRIBUTION, pins)
        if version is None:
            return f'pins no exact release; write `toolchain = "{_PIN}"`'
        if version != RELEASE:
            return f"pins {DISTRIBUTION} {version}; kbuild supports only {_PIN}"
        return None

    def targets(
        self,
        backend: str,
        archs: Sequence[str] | None,
        toolkit: str | None,  # noqa: ARG002
        pins: Sequence[str],  # noqa: ARG002
    ) -> ResolvedTargets:
        """See `Language.targets`."""
        if backend != "rocm":
            return ResolvedTargets((), (f"FlyDSL does not compile for {backend}",))
        return rocm_targets(archs, _ARCHS, f"{DISTRIBUTION} {RELEASE}")

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """See `Language.requirements`."""
        return with_companions(DISTRIBUTION, pins, _COMPANIONS)

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """See `Language.variables`."""
        # kbuild has a cache of its own. The DSL remembers the arch of its first compilation.
        cache = {"FLYDSL_RUNTIME_ENABLE_CACHE": "0"}
        return {**cache, "FLYDSL_GPU_ARCH": request["arch"]} if "arch" in request else cache

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:  # noqa: ARG002
        """See `Language.programs`."""
        return {"KBUILD_HIPCC": "hip"}

    def program(
        self,
        pins: Sequence[str],  # noqa: ARG002
        flavour: str,  # noqa: ARG002
        target: ImageTarget,  # noqa: ARG002
    ) -> str | None:
        """See `Language.program`."""
        return "hip"

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> LinkInputs:  # noqa: ARG002
        """See `Language.linked`."""
        return LinkInputs(hip=True)

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        if unit.int64:
            what = f"`{bound.function}`: `int64` has no effect in FlyDSL"
            hint = "sizes have 32 bits and strides 64; declare a number as `fx.Int64` in the kernel"
            raise BuildError(what, hint=hint)
        return {
            "kernel": unit.kernel,
            "function": bound.function,
            "version": pinned_version(DISTRIBUTION, bound.toolchain) or "",
            "arch": unit.target.arch,
            "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
            "constants": constants_of(unit, bound),
        }
