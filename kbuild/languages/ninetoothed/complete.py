"""A launch of a NineToothed kernel with everything that the kernel itself says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kbuild.config.suggest import one_of
from kbuild.languages.expression import Expression, parse, parse_condition
from kbuild.languages.ninetoothed.candidates import read_configs
from kbuild.languages.ninetoothed.facts import Facts, Part
from kbuild.languages.ninetoothed.mapping import read_sources
from kbuild.languages.ninetoothed.proposals import proposals_of
from kbuild.languages.ninetoothed.sizes import fixed_of, grid_of, wide_of
from kbuild.languages.spec.keep import with_candidates
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Launch, OpSpec, Proposal, Source

_LONG = ("int64", "uint32")
"""Dtypes of numbers that 32 bits do not hold."""


def complete(op: OpSpec, kernels: Mapping[str, Facts], place: Place) -> OpSpec | None:
    """The op as a Triton kernel would have to describe it; None after an error.

    Grid, arguments, constants, candidates and assumptions follow from the kernel. What the section
    says of dtypes, shapes and writing is judged against it.

    Args:
        op: the op as the section has it.
        kernels: the sources' kernels by name.
        place: collects everything that is wrong.
    """
    errors = place.errors
    if op.fallback != "none":
        hint = "remove it: a call without an image is refused in words"
        Place(op.path, place.issues).at("fallback").error("NineToothed kernels have none", hint)
    found = [_completed(op, launch, kernels, place) for launch in op.launches]
    made = [one for one in found if one is not None]
    if place.errors > errors:
        return None
    require = dict.fromkeys((*op.require, *(each for one in made for each in one.require)))
    proposals = dict.fromkeys(each for one in made for each in one.proposals)
    return replace(
        op,
        launches=tuple(one.launch for one in made),
        require=tuple(require),
        tune=replace(op.tune, proposals=tuple(proposals)),
    )


@dataclass(frozen=True)
class _Completed:
    """A launch, what every call of the op must meet for it, and sizes to tune it with."""

    launch: Launch
    require: tuple[Expression, ...]
    proposals: tuple[Proposal, ...]


def _completed(
    op: OpSpec, launch: Launch, kernels: Mapping[str, Facts], place: Place
) -> _Completed | None:
    where = Place(launch.path, place.issues)
    facts = _kernel(op, launch, kernels, where.at("function"))
    sources = read_sources(op, launch, facts, where) if facts is not None else None
    if facts is None or sources is None:
        return None
    _judge_names(op, facts, where)
    configs = read_configs(op, facts, sources, Place(op.path, place.issues))
    own = configs.candidates
    if launch.when is not None:  # calls without this launch need nothing of it
        own = tuple(map(configs.with_requirements, own))
    tuned = with_candidates(op, launch, own, where)
    grid = grid_of(facts, sources, where)
    fixed = fixed_of(op, launch, facts, sources, where)
    if tuned is None or grid is None or fixed is None:
        return None
    ranks = () if launch.when is not None else (*_ranks(op, facts, sources), *configs.require)
    constants = (*fixed, wide_of(facts, sources))
    settled = replace(_settled(tuned, facts, sources), grid=(grid,), constants=constants)
    return _Completed(settled, tuple(ranks), proposals_of(op, facts, sources, fixed))


def _kernel(op: OpSpec, launch: Launch, kernels: Mapping[str, Facts], place: Place) -> Facts | None:
    name = next((name for name in launch.functions if name in kernels), None)
    if name is not None:
        return kernels[name]
    hint = one_of(launch.functions[0], kernels) or "it has no `premake` with `configs`"
    place.error(f"there is no kernel `{launch.functions[0]}` in `{op.sources[0]}`", hint)
    return None


def _settled(launch: Launch, facts: Facts, sources: Mapping[str, Source]) -> Launch:
    """The launch with everything that does not depend on the section."""
    numbers = [part for part in facts.parts if part.kind in ("size", "stride")]
    scalars = [part.name for part in facts.parts if _is_long(facts, part)]
    inner = {part.name for part in numbers if _is_inner(facts, part)}
    return replace(
        launch,
        functions=(facts.name,),
        args=tuple(_args(facts, sources)),
        autotune=False,
        divisible=tuple(part.name for part in numbers if part.name not in inner),
        ones=tuple(part.name for part in numbers if part.name in inner),
        int64=(*(part.name for part in numbers), *scalars),
    )


def _judge_names(op: OpSpec, facts: Facts, place: Place) -> None:
    """A name means one thing in expressions."""
    taken = {size.name for size in op.sizes} | {name for name, _ in op.let}
    taken |= {argument.name for argument in op.schema.arguments} | {*op.results, *op.temporaries}
    kinds = ("constant", "fixed", "power")
    constants = {facts.wide} | {part.name for part in facts.parts if part.kind in kinds}
    for name in sorted(taken & constants):
        hint = "rename it here, e.g. in capital letters"
        place.error(f"`{name}` is a parameter of the premake function as well", hint)


def _is_inner(facts: Facts, part: Part) -> bool:
    return part.kind == "stride" and part.axis == facts.tensors[part.tensor].rank - 1


def _is_long(facts: Facts, part: Part) -> bool:
    return part.kind == "scalar" and any(
        config.dtypes.get(part.tensor) in _LONG for config in facts.configs
    )


def _args(facts: Facts, sources: Mapping[str, Source]) -> Iterator[tuple[str, Source]]:
    for part in facts.parts:
        if part.kind in ("size", "stride"):
            asked = parse(f"{part.kind}({sources[part.tensor].name}, {part.axis})")
            yield part.name, Source("int", expression=asked)
        elif part.kind in ("pointer", "scalar"):
            source = sources[part.tensor]
            dtypes = {config.dtypes.get(part.tensor) for config in facts.configs}
            is_double = source.kind == "float" and "float64" in dtypes
            yield part.name, replace(source, double=True) if is_double else source


def _ranks(op: OpSpec, facts: Facts, sources: Mapping[str, Source]) -> Iterator[Expression]:
    """`dim(x) == 2` for the arguments whose dimensions the section does not name."""
    for name, source in sources.items():
        if source.kind == "tensor" and op.shape(source.name) is None:
            yield parse_condition(f"dim({source.name}) == {facts.tensors[name].rank}")
