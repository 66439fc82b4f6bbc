"""cuTile Python: its releases, its targets, and the request to the worker for one unit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from kbuild.backends.capability import Capability
from kbuild.ops.bound_launch import BoundLaunch, TensorFacts
from kbuild.ops.dialects import OptionKind
from kbuild.ops.expression import parse
from kbuild.ops.language import (
    LANGUAGES,
    KernelFunction,
    Language,
    ResolvedTargets,
    constants_of,
    cuda_targets,
    pinned_version,
    release_facts,
    with_companions,
)
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import ArgumentSource
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError
from kbuild.system.version import Version

DISTRIBUTION = "cuda-tile"
OLDEST = Version.parse("1.7")
"""Oldest supported release: the first that was tried."""
DIVISOR = 16
"""Divisor that aligned units assume for addresses in bytes, and for sizes and strides in
elements."""
_FILE = Path(__file__).with_name("releases.toml")
_CUDA = 13
"""Major release of CUDA whose drivers load the images."""
_OLDEST_ARCH = Capability.parse("8.0")
_ASSEMBLER = "tileiras"


def _argument(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    if source.kind == "tensor":
        return _tensor(name, source, unit, bound)
    if source.kind not in ("int", "float", "bool"):
        what = f"`{bound.function}` takes no {source.kind} as `{name}`"
        raise BuildError(what, hint="pass tensors and numbers, the items of a tuple separately")
    if {name} & {*unit.divisible, *unit.ones}:
        what = f"`{bound.function}`: nothing can be assumed about the number `{name}`"
        hint = "`divisible` has dimensions and strides, `x.stride.0`, and `ones` strides"
        raise BuildError(what, hint=hint)
    bits = 64 if name in unit.int64 or source.double else 32
    return {"name": name, "kind": source.kind, "bits": bits}


def _tensor(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    if source.name in unit.absent:
        what = f"`{bound.function}` takes `{source.name}`, which may be None"
        raise BuildError(what, hint="write a second function without it, and select it with `when`")
    facts = bound.facts(source.name)
    if facts.dims is None and not facts.contiguous:
        what = f"`{bound.function}`: the number of dimensions of `{source.name}` is unknown"
        hint = "write them in `shapes`, or list it in `contiguous` to pass it with one dimension"
        raise BuildError(what, hint=hint)
    dims = () if facts.dims is None else facts.dims
    shape = [_size(dim, f"{name}.shape.{at}", unit, bound) for at, dim in enumerate(dims)]
    parts = {f"{name}.{word}.{at}" for word in ("shape", "stride") for at in range(len(shape))}
    parts |= {f"{name}.numel", *dims}
    others = ((other, tensor.name) for other, tensor in bound.arguments if tensor.kind == "tensor")
    same = (source.name, *facts.aliases)
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dict(unit.dtypes)[source.name],
        "align": DIVISOR if unit.aligned else 0,
        "bits": 64 if parts & {*unit.int64} else 32,
        "flat": facts.dims is None,
        "contiguous": facts.contiguous,
        "shape": [(None, 1)] if facts.dims is None else shape,
        "strides": [*_strides(name, facts, shape, unit)],
        "aliases": [other for other, tensor in others if other != name and tensor in same],
    }


def _size(dim: str, part: str, unit: KernelUnit, bound: BoundLaunch) -> tuple[int | None, int]:
    """Value of a size if all calls of the unit have it, and what it is divisible by."""
    if {dim, part} & {*unit.ones}:
        what = f"`{bound.function}`: a size of `{part.partition('.')[0]}` cannot be assumed to be 1"
        raise BuildError(what, hint="`ones` has strides, such as `x.stride.1`")
    value = dict(unit.constants).get(dim) if dim in bound.sizes else None
    value = int(dim) if dim.isdecimal() else value
    known = value if isinstance(value, int) and value > 0 else None
    is_divisible = known % DIVISOR == 0 if known else bool({dim, part} & {*unit.divisible})
    return known, DIVISOR if is_divisible else 1


def _strides(
    name: str, facts: TensorFacts, shape: Sequence[tuple[int | None, int]], unit: KernelUnit
) -> Iterator[tuple[int | None, int]]:
    """Yield the value of each stride, if it is known, and what it is divisible by."""
    if facts.dims is None:
        yield 1, 1
    for at in range(len(shape)):
        if facts.contiguous:
            inner = [size for size, _ in shape[at + 1 :]]
            divisor = max((divisor for _, divisor in shape[at + 1 :]), default=1)
            known = [size for size in inner if size is not None]
            yield (math.prod(known), 1) if len(known) == len(inner) else (None, divisor)
        elif f"{name}.stride.{at}" in unit.ones:
            yield 1, 1
        else:
            yield None, DIVISOR if f"{name}.stride.{at}" in unit.divisible else 1


@LANGUAGES.add
class Cutile(Language):
    """Kernels with `@ct.kernel`."""

    name = "cutile"
    decorator = "@ct.kernel"
    worker = "cutile"
    exporter_class = "kbuild.dsl.languages.cutile.export:CutileExporter"
    distributions = (DISTRIBUTION,)
    options: ClassVar[Mapping[str, OptionKind]] = {
        "num_ctas": "power of two",
        "occupancy": "number",
        "opt_level": "number",
        "num_worker_warps": "power of two",
    }
    has_host_code = True
    shaped = True
    init_backends = ("cuda",)

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version = pinned_version(DISTRIBUTION, pins)
        if version is None:
            return f'pins no exact release; write `toolchain = "{DISTRIBUTION}==1.7.0"`'
        if Version.parse(version) < OLDEST:
            return f"pins {DISTRIBUTION} {version}; kbuild supports {OLDEST} and later"
        return None

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """See `Language.targets`."""
        if backend != "cuda":
            return ResolvedTargets((), (f"cuTile does not compile for {backend}",))
        if toolkit is not None and Version.parse(toolkit).major < _CUDA:
            what = f"images of cuTile need a driver for CUDA {_CUDA} (580)"
            return ResolvedTargets((), (f"{what}; left out for {toolkit}",))
        old = [arch for arch in archs or () if Capability.parse(arch).base < _OLDEST_ARCH.base]
        notes = [f"{arch}: cuTile compiles for {_OLDEST_ARCH} and later; left out" for arch in old]
        rest = None if archs is None else [arch for arch in archs if arch not in old]
        resolved = cuda_targets(rest, _release(pins)["archs"], DISTRIBUTION)
        return ResolvedTargets(resolved.targets, (*notes, *resolved.notes))

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """See `Language.requirements`."""
        return with_companions(DISTRIBUTION, pins, _release(pins)["pins"])

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        """See `Language.variables`."""
        # kbuild has a cache of its own.
        return {"CUDA_TILE_CACHE_DIR": "off"}

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:  # noqa: ARG002
        """See `Language.programs`."""
        return {"KBUILD_TILEIRAS": _ASSEMBLER}

    def program(
        self,
        pins: Sequence[str],  # noqa: ARG002
        flavour: str,  # noqa: ARG002
        target: ImageTarget,  # noqa: ARG002
    ) -> str | None:
        """See `Language.program`."""
        return _ASSEMBLER

    def complete(
        self,
        op: OpSpec,
        functions: Mapping[str, KernelFunction],  # noqa: ARG002
        place: IssueCollector,  # noqa: ARG002
    ) -> OpSpec | None:
        """Require that no stride is negative, as only those of Torch never are."""
        given = (name for name in op.inputs if name not in (*op.optional, *op.contiguous))
        ranks = ((name, rule.rank or 0) for name in given if (rule := op.shape(name)) is not None)
        strides = (f"stride({name}, {at}) >= 0" for name, rank in ranks for at in range(rank))
        return replace(op, require=(*op.require, *map(parse, strides)))

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        return {
            "function": bound.function,
            "arch": unit.target.arch,
            "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
            "constants": constants_of(unit, bound),
            "options": dict(unit.options),
        }


def _release(pins: Sequence[str]) -> Mapping[str, Any]:
    return release_facts(_FILE, pinned_version(DISTRIBUTION, pins) or "")
