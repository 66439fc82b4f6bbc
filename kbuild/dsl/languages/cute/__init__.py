"""CuTe DSL: its releases, its targets, and the request to the worker for one unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from kbuild.ops.bound_launch import BoundLaunch, TensorFacts
from kbuild.ops.expression import ExpressionError, parse
from kbuild.ops.expression.nodes import Number
from kbuild.ops.language import (
    LANGUAGES,
    Language,
    LinkInputs,
    ResolvedTargets,
    constants_of,
    cuda_targets,
    pinned_version,
    release_facts,
    with_companions,
)
from kbuild.ops.steps import ArgumentSource
from kbuild.ops.unit import KernelUnit
from kbuild.project.licences import Licence
from kbuild.system.errors import BuildError, ToolchainError
from kbuild.system.version import Version

DIVISOR = 16
"""Divisor that aligned units assume for addresses in bytes, and for sizes and strides in
elements."""


def _argument(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    if source.kind == "tuple":
        parts = enumerate(source.items)
        items = [_argument(f"{name}.{index}", item, unit, bound) for index, item in parts]
        return {"name": name, "kind": "tuple", "items": items}
    if source.kind == "tensor":
        return _tensor(name, source, unit, bound)
    if source.kind == "int":
        if name in unit.ones:
            return {"name": name, "kind": "one"}
        if name in unit.divisible:
            what = f"`{bound.function}`: `{name}` cannot be assumed to be divisible"
            hint = "name a dimension or a stride, `x.stride.0`, in `divisible`"
            raise BuildError(what, hint=hint)
        return {"name": name, "kind": "int", "bits": 64 if name in unit.int64 else 32}
    return {"name": name, "kind": source.kind}


def _tensor(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    if source.name in unit.absent:
        return {"name": name, "kind": "none"}
    facts = bound.facts(source.name)
    dtype, align = dict(unit.dtypes)[source.name], DIVISOR if unit.aligned else 0
    tensor = {"name": name, "kind": "tensor", "dtype": dtype, "align": align}
    if facts.dims is None:
        if not facts.contiguous:
            what = f"`{bound.function}`: the number of dimensions of `{source.name}` is unknown"
            hint = (
                "write them in `shapes`, or list it in `contiguous` to pass it with one dimension"
            )
            raise BuildError(what, hint=hint)
        return {**tensor, "kind": "flat", "shape": [{"bits": 64, "divisor": 1}], "strides": [1]}
    shape = [_size(dim, f"{name}.shape.{at}", unit, bound) for at, dim in enumerate(facts.dims)]
    strides = None if facts.contiguous else list(_strides(name, facts, unit, bound))
    return {**tensor, "shape": shape, "strides": strides}


def _size(dim: str, part: str, unit: KernelUnit, bound: BoundLaunch) -> Any:
    """A constant, or an object with name, bits and divisor; equal names are equal sizes."""
    fixed = int(dim) if dim.isdecimal() else _fixed(dim, unit, bound)
    if fixed is not None:
        return fixed
    # A section names the dimension, or the part of one tensor: `N`, `x.shape.1`.
    ones = {part, dim} & set(unit.ones)
    if ones:
        # Sets have no order, and the request is part of the cache key.
        return {"one": min(ones)}
    divisor = DIVISOR if {part, dim} & set(unit.divisible) else 1
    bits = 64 if {part, dim} & set(unit.int64) else 32
    return {"size": dim, "bits": bits, "divisor": divisor}


def _strides(name: str, facts: TensorFacts, unit: KernelUnit, bound: BoundLaunch) -> Iterator[Any]:
    for axis in range(len(facts.dims or ())):
        part = f"{name}.stride.{axis}"
        fixed = _fixed(f"stride({facts.name}, {axis})", unit, bound)
        divisor = DIVISOR if part in unit.divisible else 1
        known = {"one": part} if part in unit.ones else {"bits": 64, "divisor": divisor}
        yield known if fixed is None else fixed


def _fixed(text: str, unit: KernelUnit, bound: BoundLaunch) -> int | None:
    """Value of a size or a stride that the unit's constants fix for all of its calls.

    None if they do not fix it, or to a value that no tensor can have: the code is for any value.
    """
    constants = dict(unit.constants)
    parts = {
        expression.root: Number(value)
        for name, expression in bound.choices
        if isinstance(value := constants.get(name), int)
    }
    with suppress(ExpressionError):
        value = parse(text).mapped(parts.get).bind({}).constant
        return value if value is None or value > 0 else None
    return None


DISTRIBUTION = "nvidia-cutlass-dsl"
OLDEST = Version.parse("4.5")
"""Oldest supported release; older ones start the driver when they compile."""
_FILE = Path(__file__).with_name("releases.toml")
_FORM = r"\d{1,18}\.\d{1,18}\.\d{1,18}"


def version_of(pins: Sequence[str]) -> str | None:
    """The exact release that is pinned; None without one."""
    return pinned_version(DISTRIBUTION, pins, _FORM)


def facts_of(pins: Sequence[str]) -> Mapping[str, Any]:
    """Facts in `releases.toml` about the pinned release."""
    return release_facts(_FILE, version_of(pins) or "")


_FIRST_RUNTIME = Version.parse("12.8")
"""First CUDA runtime with `cudaLibraryLoadData`."""
_ARCH = "CUTE_DSL_ARCH"
"""Variable with the arch. The DSL reads it once, at import; a process that then compiles for
another arch makes broken objects."""


@LANGUAGES.add
class Cute(Language):
    """Kernels with `@cute.jit`."""

    name = "cute"
    decorator = "@cute.jit"
    worker = "cute"
    exporter_class = "kbuild.dsl.languages.cute.export:CuteExporter"
    distributions = (DISTRIBUTION,)
    needs_grid = False
    has_host_code = True
    shaped = True
    init_backends: ClassVar[tuple[str, ...]] = ("cuda",)
    init_note = (
        "NVIDIA's static runtime, from your own wheel, is linked into the kernel; whoever "
        f"publishes it must accept its licence: `kbuild upload --accept-license {DISTRIBUTION}`"
    )
    licence_terms = (
        Licence(
            DISTRIBUTION,
            "NVIDIA's Software License Agreement for the CUTLASS DSL",
            "https://docs.nvidia.com/cutlass/latest/media/docs/pythonDSL/license.html",
        ),
    )

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version = version_of(pins)
        if version is None:
            return f'pins no exact release; write `toolchain = "{DISTRIBUTION}==4.8.1"`'
        if Version.parse(version) < OLDEST:
            return (
                f"pins {DISTRIBUTION} {version}, which compiles only on machines with "
                f"libcuda.so.1; kbuild supports {OLDEST} and later"
            )
        return None

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """See `Language.targets`."""
        if backend != "cuda":
            return ResolvedTargets((), (f"CuTe DSL does not compile for {backend}",))
        if toolkit is not None and Version.parse(toolkit) < _FIRST_RUNTIME:
            needed = f"objects of CuTe DSL need the CUDA runtime of {_FIRST_RUNTIME} or later"
            hint = f'write `minver = "{_FIRST_RUNTIME}"` in `[general.cuda]`'
            note = f"{needed}, but Torch ships that of {toolkit}; {hint}"
            return ResolvedTargets((), (note,))
        return cuda_targets(archs, facts_of(pins)["archs"], DISTRIBUTION)

    def environment(self, pins: Sequence[str], flavour: str) -> tuple[str, ...]:
        """See `Language.environment`."""
        facts, version = facts_of(pins), version_of(pins)
        rows = (*facts["pins"], *facts.get(flavour, ()))
        return with_companions(DISTRIBUTION, pins, (row.format(version=version) for row in rows))

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """See `Language.variables`."""
        return {_ARCH: request["arch"]} if "arch" in request else {}

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> LinkInputs:
        """See `Language.linked`."""
        major = flavour.removeprefix("cuda")
        archive = root / facts_of(pins)["runtime"].format(major=major)
        if not archive.is_file():
            raise ToolchainError(f"{DISTRIBUTION} has no static runtime at {archive}")
        return LinkInputs((archive,), cudart=major)

    def licences(self, pins: Sequence[str]) -> Mapping[str, str]:
        """See `Language.licences`."""
        return {DISTRIBUTION: f"the static runtime of {DISTRIBUTION} {version_of(pins)}"}

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        return {
            "kernel": unit.kernel,
            "function": bound.function,
            "version": version_of(bound.toolchain) or "",
            "arch": unit.target.arch,
            "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
            "constants": constants_of(unit, bound),
            "options": dict(unit.options),
        }
