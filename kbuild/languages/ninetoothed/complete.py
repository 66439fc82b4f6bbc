"""A launch of a NineToothed kernel with everything that the kernel itself says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kbuild.config.suggest import one_of
from kbuild.languages.expression import Expression, ExpressionError, parse, parse_condition
from kbuild.languages.ninetoothed.candidates import read_configs
from kbuild.languages.ninetoothed.facts import Facts, Part
from kbuild.languages.ninetoothed.mapping import read_sources
from kbuild.languages.spec.keep import with_candidates
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Constant, Launch, OpSpec, Source

_FAR = 2**31 - 2**20
"""The first offset that a kernel may not reach with 32 bits: a block has at most 2**20 elements."""
_WORD = re.compile(
    r"(?P<query>size|stride)\((?P<tensor>\w+), (?P<axis>\d+)\)|(?P<name>[A-Za-z_]\w*)"
)


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
    launches = [_launch(op, launch, kernels, place) for launch in op.launches]
    if place.errors > errors:
        return None
    require = tuple(dict.fromkeys((*op.require, *_ranks(op, kernels))))
    return replace(op, launches=tuple(one for one in launches if one is not None), require=require)


def _launch(
    op: OpSpec, launch: Launch, kernels: Mapping[str, Facts], place: Place
) -> Launch | None:
    where = Place(launch.path, place.issues)
    name = next((name for name in launch.functions if name in kernels), None)
    if name is None:
        hint = one_of(launch.functions[0], kernels) or "it has no `premake` with `configs`"
        where.at("function").error(
            f"there is no kernel `{launch.functions[0]}` in `{op.sources[0]}`", hint
        )
        return None
    facts = kernels[name]
    sources = read_sources(op, launch, facts, where)
    if sources is None:
        return None
    _judge_names(op, facts, where)
    candidates = read_configs(op, facts, sources, Place(op.path, place.issues))
    tuned = with_candidates(op, launch, candidates, where)
    grid = _grid(facts, sources, where)
    if tuned is None or grid is None:
        return None
    numbers = [part for part in facts.parts if part.kind in ("size", "stride")]
    scalars = [part.name for part in facts.parts if _is_long(facts, part)]
    inner = {part.name for part in numbers if _is_inner(facts, part)}
    return replace(
        tuned,
        functions=(name,),
        args=tuple(_args(facts, sources)),
        constants=(_wide(facts, sources),),
        autotune=False,
        grid=(grid,),
        divisible=tuple(part.name for part in numbers if part.name not in inner),
        ones=tuple(part.name for part in numbers if part.name in inner),
        int64=(*(part.name for part in numbers), *scalars),
    )


def _judge_names(op: OpSpec, facts: Facts, place: Place) -> None:
    """A name means one thing in expressions."""
    taken = {size.name for size in op.sizes} | {name for name, _ in op.let}
    taken |= {argument.name for argument in op.schema.arguments} | {*op.results, *op.temporaries}
    constants = {facts.wide} | {part.name for part in facts.parts if part.kind == "constant"}
    for name in sorted(taken & constants):
        hint = "rename it here, e.g. in capital letters"
        place.error(f"`{name}` is a parameter of the premake function as well", hint)


def _is_inner(facts: Facts, part: Part) -> bool:
    return part.kind == "stride" and part.axis == facts.tensors[part.tensor].rank - 1


def _is_long(facts: Facts, part: Part) -> bool:
    dtypes = {config.dtypes.get(part.tensor) for config in facts.configs}
    return part.kind == "scalar" and dtypes == {"int64"}


def _args(facts: Facts, sources: Mapping[str, Source]) -> Iterator[tuple[str, Source]]:
    for part in facts.parts:
        if part.kind in ("size", "stride"):
            asked = parse(f"{part.kind}({sources[part.tensor].name}, {part.axis})")
            yield part.name, Source("int", expression=asked)
        elif part.kind != "constant":
            yield part.name, sources[part.tensor]


def _wide(facts: Facts, sources: Mapping[str, Source]) -> Constant:
    """Whether any element is further from its tensor's first than 32 bits can say."""
    texts = [
        text
        for name, tensor in facts.tensors.items()
        if tensor.rank
        for text in _far(sources[name].name, [config.shapes[name] for config in facts.configs])
    ]
    return Constant(facts.wide, None, parse_condition(" or ".join(texts)), (False, True))


def _far(tensor: str, shapes: Sequence[Sequence[int | None]]) -> Iterator[str]:
    axes = range(len(shapes[0]))
    steps = (f"(size({tensor}, {axis}) - 1) * stride({tensor}, {axis})" for axis in axes)
    yield f"{' + '.join(steps)} >= {_FAR}"
    for axis in axes:
        if any(shape[axis] is None for shape in shapes):  # it may be expanded, without steps
            yield f"size({tensor}, {axis}) >= {_FAR}"


def _grid(facts: Facts, sources: Mapping[str, Source], place: Place) -> Expression | None:
    """The number of blocks: of each config, chosen by its constants where it differs."""
    texts: dict[str, list[str]] = {}
    for config in facts.configs:
        text = _WORD.sub(lambda match: _asked(match, sources), config.grid)
        numbers = [(n, v) for n, v in config.constants if isinstance(v, int)]
        condition = " and ".join(f"{name} == {int(value)}" for name, value in numbers)
        texts.setdefault(text, []).append(condition or "True")
    if len(texts) > 1 and sum(len(set(one)) for one in texts.values()) > len(
        set().union(*texts.values())
    ):
        hint = "have a whole number among the arguments of `premake` that differ"
        place.error(f"nothing that is a number says which grid of `{facts.name}` is meant", hint)
    try:
        return parse(_chosen(texts))
    except ExpressionError as error:
        place.error(f"the grid of `{facts.name}` is `{facts.configs[0].grid}`: {error.message}")
        return None


def _chosen(texts: Mapping[str, list[str]]) -> str:
    *others, last = texts
    chain = f"({last})"
    for text in reversed(others):
        conditions = " or ".join(dict.fromkeys(f"({one})" for one in texts[text]))
        chain = f"({text}) if {conditions} else {chain}"
    return chain


def _asked(match: re.Match[str], sources: Mapping[str, Source]) -> str:
    if match["query"]:
        return f"{match['query']}({sources[match['tensor']].name}, {match['axis']})"
    source = sources.get(match["name"])
    return f"({source})" if source is not None else match["name"]


def _ranks(op: OpSpec, kernels: Mapping[str, Facts]) -> Iterator[Expression]:
    """`dim(x) == 2` for the arguments whose dimensions the section does not name."""
    for launch in op.launches:
        facts = next(kernels[name] for name in launch.functions if name in kernels)
        sources = read_sources(op, launch, facts, Place(()))
        for name, source in (sources or {}).items():
            if source.kind == "tensor" and op.shape(source.name) is None:
                yield parse_condition(f"dim({source.name}) == {facts.tensors[name].rank}")
