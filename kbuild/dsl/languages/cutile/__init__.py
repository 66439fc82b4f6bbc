"""cuTile Python: its releases, its targets, and the request to the worker for one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from kbuild.backends.capability import Capability
from kbuild.ops.bound_launch import BoundLaunch
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
from kbuild.ops.tensor_layout import tensor_layout
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError
from kbuild.system.version import Version

DISTRIBUTION = "cuda-tile"
OLDEST = Version.parse("1.7")
"""Oldest supported release: the first that was tried."""
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
    layout, facts = tensor_layout(name, source, unit, bound), bound.facts(source.name)
    dims = facts.dims or ()
    parts = {f"{name}.{word}.{at}" for word in ("shape", "stride") for at in range(len(dims))}
    parts |= {f"{name}.numel", *dims}
    others = ((other, tensor.name) for other, tensor in bound.arguments if tensor.kind == "tensor")
    same = (source.name, *facts.aliases)
    return {
        **layout,
        "bits": 64 if parts & {*unit.int64} else 32,
        "aliases": [other for other, tensor in others if other != name and tensor in same],
    }


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
