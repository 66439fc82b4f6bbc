"""A kernel's `configs` as candidates: constants, options, and the calls that each is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbuild.config.suggest import listed
from kbuild.languages.expression import Expression, parse_condition
from kbuild.languages.ninetoothed.facts import Config, Facts
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Candidate, OpSpec, Pairs, Source

WARPS = 8
STAGES = 3
"""What a config has that does not say it: NineToothed's own number of warps, and stages that fit
the shared memory of every GPU (its own number depends on the GPU of the machine that builds)."""
_DEFAULTS: Pairs = (("num_warps", WARPS), ("num_stages", STAGES))

Dtypes = Mapping[str, str]


@dataclass(frozen=True)
class Configs:
    """What a kernel's configs come to."""

    candidates: tuple[Candidate, ...]
    require: tuple[Expression, ...]
    """What every one of them needs of the sizes."""

    def with_requirements(self, candidate: Candidate) -> Candidate:
        """The candidate with these conditions among its own."""
        when = candidate.when
        for condition in reversed(self.require):
            when = condition.and_also(when)
        return replace(candidate, when=when)


def read_configs(op: OpSpec, facts: Facts, sources: Mapping[str, Source], place: Place) -> Configs:
    """The candidates in the author's order, those for certain sizes before those for all.

    Args:
        op: its dtypes and shapes decide what a config is for.
        facts: the kernel.
        sources: what the application's parameters are.
        place: of the op, for errors.
    """
    called = _Called(op, sources)
    _judge_dtypes(op, facts, called, place)
    groups: dict[str, list[Config]] = {}
    for config in facts.configs:
        groups.setdefault(repr((config.constants, _options(config))), []).append(config)
    sizes = [tuple(dict.fromkeys(_sizes(op, g[0], called, place))) for g in groups.values()]
    common = [text for text in sizes[0] if all(text in one for one in sizes)]
    found = []
    for group, texts in zip(groups.values(), sizes, strict=True):
        own = [text for text in texts if text not in common]
        asked = (*own, *_dtype_conditions(op, facts, group, called, place))
        when = parse_condition(" and ".join(asked)) if asked else None
        found.append((len(own), Candidate(group[0].constants, _options(group[0]), when)))
    found.sort(key=lambda pair: -pair[0])
    require = tuple(map(parse_condition, common))
    return Configs(tuple(candidate for _, candidate in found), require)


class _Called:
    """The application's tensors by the op's names."""

    def __init__(self, op: OpSpec, sources: Mapping[str, Source]) -> None:
        self.op = op
        self.tensors = {n: one.name for n, one in sources.items() if one.kind == "tensor"}

    def fits(self, config: Config, dtypes: Dtypes) -> bool:
        """Whether a config is for a call with these dtypes."""
        own = ((tensor, config.dtypes[name]) for name, tensor in self.tensors.items())
        return all(wanted is None or dtypes[tensor] == wanted for tensor, wanted in own)

    def said(self, dtypes: Mapping[str, str | None]) -> str:
        """The dtypes in words: one when all are the same."""
        if len(set(dtypes.values())) == 1:
            return f"`{next(iter(dtypes.values()))}`"
        return ", ".join(f"`{dtype}` for `{tensor}`" for tensor, dtype in dtypes.items())


def _judge_dtypes(op: OpSpec, facts: Facts, called: _Called, place: Place) -> None:
    """The section's dtypes against those of the configs: neither may have more."""
    sets = op.dtype_sets()
    where = place.at("dtypes")
    own = set(called.tensors.values())
    for dtypes in sets:
        if not any(called.fits(config, dtypes) for config in facts.configs):
            said = called.said({tensor: d for tensor, d in dtypes.items() if tensor in own})
            where.error(f"`{facts.name}` has no config for {said}", "add one, or leave it out here")
    foreign: dict[str, list[int]] = {}
    for index, config in enumerate(facts.configs, 1):
        if not any(called.fits(config, dtypes) for dtypes in sets):
            said = called.said({t: config.dtypes[name] for name, t in called.tensors.items()})
            foreign.setdefault(said, []).append(index)
    for said, configs in foreign.items():
        which = f"config {configs[0]}" + (f" and {len(configs) - 1} more" if configs[1:] else "")
        where.error(f"`{facts.name}` has configs for {said}: {which}", "add the dtype here")


def _options(config: Config) -> Pairs:
    own = dict(config.options)
    return tuple((name, own.get(name, default)) for name, default in _DEFAULTS)


def _sizes(op: OpSpec, config: Config, called: _Called, place: Place) -> Iterator[str]:
    """`M == 512` for each size that is written into the kernel."""
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
    op: OpSpec, facts: Facts, group: Sequence[Config], called: _Called, place: Place
) -> Iterator[str]:
    """What tells the dtypes of a candidate from those that it is not made for: element sizes.

    A kernel whose text does not depend on dtypes is right for all of the same size. One whose text
    does must have a config for each.
    """
    sets = op.dtype_sets()
    own = [one for one in sets if any(called.fits(config, one) for config in group)]
    left = list(sets)
    for tensor in dict.fromkeys(called.tensors.values()):
        sizes = {DTYPES[one[tensor]] for one in own}
        if sizes and sizes != {DTYPES[one[tensor]] for one in sets}:
            left = [one for one in left if DTYPES[one[tensor]] in sizes]
            asked = " or ".join(f"itemsize({tensor}) == {size}" for size in sorted(sizes))
            yield f"({asked})"
    same = [one for one in facts.configs if one.constants == group[0].constants]
    for dtypes in left:
        if group[0].by_dtype and not any(called.fits(config, dtypes) for config in same):
            said = (
                f"{called.said(dtypes)} with {listed(f'{n} = {v}' for n, v in same[0].constants)}"
            )
            hint = "the kernel's text depends on the dtype: add the config"
            place.at("dtypes").error(f"`{facts.name}` has no config for {said}", hint)
