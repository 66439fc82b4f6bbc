"""The kernel as the worker describes it, and its `configs` as candidates and sizes to tune."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import Expression, parse, parse_condition
from kbuild.ops.model import OpSpec, TuneProposal
from kbuild.ops.steps import ArgumentSource, Candidate, Constant, Pairs
from kbuild.project.config.issue import IssueCollector, listed


@dataclass(frozen=True)
class GeneratedParameter:
    """A parameter of the Triton function that was generated from the kernel."""

    name: str
    """Such as `input_ptr`, `input_size_0`, `alpha`; for a constant, its name."""
    kind: Literal["pointer", "size", "stride", "scalar", "fixed", "power", "constant"]
    """`fixed` is a size that the code is compiled for, `power` its next power of two."""
    tensor: str
    """The parameter of `application` that it belongs to."""
    axis: int


@dataclass(frozen=True)
class KernelTensor:
    """A `ninetoothed.Tensor` of the kernel."""

    rank: int
    """Number of dimensions; 0 for a number."""
    constant: bool
    """True for a number that `premake` fixes."""
    bounds: tuple[int | None, ...]
    """`upper_bound` of each dimension, or None; for tuning."""


@dataclass(frozen=True)
class KernelConfig:
    """One entry of `configs`."""

    constants: Pairs
    """Arguments of `premake` that differ between configs or that tuning chooses."""
    options: Pairs
    grid: str
    """Number of blocks, as an expression over `size(<parameter>, <axis>)`."""
    shapes: Mapping[str, tuple[int | None, ...]]
    """Sizes that are constants of the kernel's code; None for those that each call passes."""
    dtypes: Mapping[str, str | None]
    """Torch dtypes by parameter; None where the kernel takes any."""
    by_dtype: bool = False
    """True if the kernel's code depends on the dtypes."""


@dataclass(frozen=True)
class NineToothedKernel:
    """A kernel with all its configs."""

    name: str
    parts: tuple[GeneratedParameter, ...]
    wide: str
    """Name of the constant that is true if sizes and strides need 64 bits."""
    tensors: Mapping[str, KernelTensor]
    """Tensors by parameter of `application`, in order."""
    written: tuple[str, ...]
    """Parameters that the kernel stores to."""
    configs: tuple[KernelConfig, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NineToothedKernel:
        """Parse the worker's description."""
        return cls(
            data["name"],
            tuple(GeneratedParameter(**part) for part in data["parameters"]),
            data["wide"],
            {name: _tensor(tensor) for name, tensor in data["tensors"].items()},
            tuple(data["written"]),
            tuple(_config(config) for config in data["configs"]),
        )


def _tensor(data: Mapping[str, Any]) -> KernelTensor:
    return KernelTensor(data["rank"], data["constant"], tuple(data["bounds"]))


def _config(data: Mapping[str, Any]) -> KernelConfig:
    shapes = {name: tuple(shape) for name, shape in data["shapes"].items()}
    constants, options = tuple(data["constants"].items()), tuple(data["options"].items())
    return KernelConfig(constants, options, data["grid"], shapes, data["dtypes"], data["by_dtype"])


WARPS = 8
STAGES = 3
"""Warps and stages of a config that does not set them. The warps are NineToothed's own number. Its
stages depend on the GPU of the machine that builds; these fit the shared memory of every GPU."""
_DEFAULTS: Pairs = (("num_warps", WARPS), ("num_stages", STAGES))

Dtypes = Mapping[str, str]


@dataclass(frozen=True)
class ConfigCandidates:
    """The candidates that a kernel's configs become."""

    candidates: tuple[Candidate, ...]
    require: tuple[Expression, ...]
    """Conditions on sizes that are common to all candidates."""

    def with_requirements(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the common conditions added to its own."""
        when = candidate.when
        # Each is put before the others, so the last one comes first here.
        for condition in reversed(self.require):
            when = condition.and_also(when)
        return replace(candidate, when=when)


def candidates_from_configs(
    op: OpSpec,
    facts: NineToothedKernel,
    sources: Mapping[str, ArgumentSource],
    place: IssueCollector,
) -> ConfigCandidates:
    """Return the candidates in the author's order, those for certain sizes first.

    The op's dtypes and shapes decide when a candidate applies; errors are added to `place`.
    """
    called = _BoundTensors(op, sources)
    _judge_dtypes(op, facts, called, place)
    groups: dict[str, list[KernelConfig]] = {}
    for config in facts.configs:
        groups.setdefault(repr((config.constants, _options(config))), []).append(config)
    sizes = [tuple(dict.fromkeys(_sizes(op, g[0], called, place))) for g in groups.values()]
    common = [text for text in sizes[0] if all(text in config_texts for config_texts in sizes)]
    candidates = []
    for group, texts in zip(groups.values(), sizes, strict=True):
        own_sizes = [text for text in texts if text not in common]
        asked = (*own_sizes, *_dtype_conditions(op, facts, group, called, place))
        when = parse_condition(" and ".join(asked)) if asked else None
        candidates.append((len(own_sizes), Candidate(group[0].constants, _options(group[0]), when)))
    # The sort is stable: the author's order decides among equally many conditions on sizes.
    candidates.sort(key=lambda pair: -pair[0])
    require = tuple(map(parse_condition, common))
    return ConfigCandidates(tuple(candidate for _, candidate in candidates), require)


class _BoundTensors:
    """The tensors of `application` and their names in the op."""

    def __init__(self, op: OpSpec, sources: Mapping[str, ArgumentSource]) -> None:
        self.op = op
        self.tensors = {n: source.name for n, source in sources.items() if source.kind == "tensor"}

    def fits(self, config: KernelConfig, dtypes: Dtypes) -> bool:
        """True if a config is for calls with these dtypes."""
        wanted_dtypes = ((tensor, config.dtypes[name]) for name, tensor in self.tensors.items())
        return all(wanted is None or dtypes[tensor] == wanted for tensor, wanted in wanted_dtypes)

    def describe(self, dtypes: Mapping[str, str | None]) -> str:
        """Text with the dtypes for a message: a single one if all are the same."""
        if len(set(dtypes.values())) == 1:
            return f"`{next(iter(dtypes.values()))}`"
        return ", ".join(f"`{dtype}` for `{tensor}`" for tensor, dtype in dtypes.items())


def _judge_dtypes(
    op: OpSpec, facts: NineToothedKernel, called: _BoundTensors, place: IssueCollector
) -> None:
    """Report dtypes that only the section has, and dtypes that only the configs have."""
    sets = op.dtype_sets()
    where = place.at("dtypes")
    own = set(called.tensors.values())
    if not any(called.fits(config, dtypes) for config in facts.configs for dtypes in sets):
        # A single error instead of one for each side.
        first = facts.configs[0]
        kernel = called.describe({t: first.dtypes[name] for name, t in called.tensors.items()})
        section = called.describe({tensor: d for tensor, d in sets[0].items() if tensor in own})
        message = f"`{facts.name}` has configs for {kernel}, and the section says {section}"
        where.error(message, "write the same dtypes in both")
        return
    for dtypes in sets:
        if not any(called.fits(config, dtypes) for config in facts.configs):
            description = called.describe(
                {tensor: d for tensor, d in dtypes.items() if tensor in own}
            )
            message = f"`{facts.name}` has no config for {description}"
            where.error(message, "add one, or leave it out here")
    others: dict[str, list[int]] = {}
    for index, config in enumerate(facts.configs, 1):
        if not any(called.fits(config, dtypes) for dtypes in sets):
            own_dtypes = {t: config.dtypes[name] for name, t in called.tensors.items()}
            description = called.describe(own_dtypes)
            others.setdefault(description, []).append(index)
    for description, configs in others.items():
        which = f"config {configs[0]}" + (f" and {len(configs) - 1} more" if configs[1:] else "")
        where.error(f"`{facts.name}` has configs for {description}: {which}", "add the dtype here")


def _options(config: KernelConfig) -> Pairs:
    own = dict(config.options)
    return tuple((name, own.get(name, default)) for name, default in _DEFAULTS)


def _sizes(
    op: OpSpec, config: KernelConfig, called: _BoundTensors, place: IssueCollector
) -> Iterator[str]:
    """Yield a condition `M == 512` for each size that is a constant of the kernel's code."""
    for name, tensor in called.tensors.items():
        rule = op.shape(tensor)
        for axis, size in enumerate(config.shapes[name]):
            if size is None:
                continue
            dim = rule.dims[axis] if rule is not None else None
            if dim is None or dim.constant is None:
                yield f"{_size_of(tensor, axis, dim)} == {size}"
            elif dim.constant != size:
                message = f"dimension {axis} is {dim}, but {size} in a config of `{tensor}`"
                place.at("shapes", tensor).error(message)


def _size_of(tensor: str, axis: int, dim: Expression | None) -> str:
    if dim is None:
        return f"size({tensor}, {axis})"
    return str(dim) if str(dim).isidentifier() else f"({dim})"


def _dtype_conditions(
    op: OpSpec,
    facts: NineToothedKernel,
    group: Sequence[KernelConfig],
    called: _BoundTensors,
    place: IssueCollector,
) -> Iterator[str]:
    """Yield conditions on element sizes that exclude dtypes which a candidate is not for.

    Code that does not depend on dtypes is right for all dtypes of the same size. Code that does
    must have a config for each of them.
    """
    sets = op.dtype_sets()
    own = [dtypes for dtypes in sets if any(called.fits(config, dtypes) for config in group)]
    left = list(sets)
    for tensor in dict.fromkeys(called.tensors.values()):
        sizes = {DTYPES[dtypes[tensor]] for dtypes in own}
        if sizes and sizes != {DTYPES[dtypes[tensor]] for dtypes in sets}:
            left = [dtypes for dtypes in left if DTYPES[dtypes[tensor]] in sizes]
            asked = " or ".join(f"itemsize({tensor}) == {size}" for size in sorted(sizes))
            yield f"({asked})"
    same = [config for config in facts.configs if config.constants == group[0].constants]
    for dtypes in left:
        if group[0].by_dtype and not any(called.fits(config, dtypes) for config in same):
            constants = listed(f"{name} = {value}" for name, value in same[0].constants)
            description = f"{called.describe(dtypes)} with {constants}"
            hint = "the kernel's text depends on the dtype: add the config"
            place.at("dtypes").error(f"`{facts.name}` has no config for {description}", hint)


def tuning_proposals(
    op: OpSpec,
    facts: NineToothedKernel,
    sources: Mapping[str, ArgumentSource],
    fixed: Sequence[Constant],
) -> tuple[TuneProposal, ...]:
    """Return the sizes and bounds to tune with; `fixed` are sizes that the code is compiled for."""
    named = list(_named(op, facts, sources))
    bounds = _bounds(facts, named)
    proposals = (
        TuneProposal(tuple(sizes.items()), tuple(_rest(bounds, sizes)))
        for config in facts.configs
        for chosen in _chosen(op, fixed)
        if (sizes := chosen | _config_sizes(config, named)) or bounds
    )
    return tuple(dict.fromkeys(proposals))


def _named(
    op: OpSpec, facts: NineToothedKernel, sources: Mapping[str, ArgumentSource]
) -> Iterator[tuple[str, int, str]]:
    """Yield a parameter of `application`, an axis, and the op's name of that dimension."""
    names = {size.name for size in op.sizes}
    for parameter, source in sources.items():
        rule = op.shape(source.name) if source.kind == "tensor" else None
        dims = rule.dims if rule is not None and facts.tensors[parameter].rank else ()
        for axis, dim in enumerate(dims):
            if str(dim) in names:
                yield parameter, axis, str(dim)


def _bounds(facts: NineToothedKernel, named: list[tuple[str, int, str]]) -> dict[str, int]:
    """The smallest `upper_bound` of each dimension."""
    bounds: dict[str, int] = {}
    for parameter, axis, name in named:
        bound = facts.tensors[parameter].bounds[axis]
        if bound is not None:
            bounds[name] = min(bound, bounds.get(name, bound))
    return bounds


def _config_sizes(config: KernelConfig, named: list[tuple[str, int, str]]) -> dict[str, int]:
    sizes = ((name, config.shapes[parameter][axis]) for parameter, axis, name in named)
    return {name: size for name, size in sizes if size is not None}


def _chosen(op: OpSpec, fixed: Sequence[Constant]) -> Iterator[dict[str, int]]:
    """Yield every combination of sizes that have images; powers of two count as sizes."""
    values: dict[str, list[int]] = {}
    for constant in fixed:
        for size in op.sizes:
            if constant.expression in (parse(size.name), parse(f"next_pow2({size.name})")):
                values.setdefault(size.name, [int(choice) for choice in constant.choices])
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _rest(bounds: Mapping[str, int], sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((name, bound) for name, bound in bounds.items() if name not in sizes)
