"""Completes launches of NineToothed kernels: arguments, fixed sizes, grid, 64-bit positions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbuild.dsl.languages.ninetoothed.configs import (
    NineToothedKernel,
    candidates_from_configs,
    tuning_proposals,
)
from kbuild.dsl.worker.ninetoothed.merge import INT32_LIMIT
from kbuild.ops.binding import default_source
from kbuild.ops.candidates import with_candidates
from kbuild.ops.expression import (
    Expression,
    ExpressionError,
    any_of,
    first_of,
    parse,
    parse_condition,
)
from kbuild.ops.model import OpSpec, TuneProposal
from kbuild.ops.steps import ArgumentSource, Constant, Launch
from kbuild.project.config.issue import IssueCollector, listed, one_of

_NUMBERS: dict[str | None, str] = {
    None: "",
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "float"),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "int"),
    "bool": "bool",
}
"""Dtype of a number -> kind of the op's argument; other dtypes cannot be passed."""


def bind_parameters(
    op: OpSpec, launch: Launch, facts: NineToothedKernel, place: IssueCollector
) -> dict[str, ArgumentSource] | None:
    """Return the source of each parameter of `application`; None after an error."""
    errors = place.errors
    written = dict(launch.args)
    wanted = [name for name, tensor in facts.tensors.items() if not tensor.constant]
    for name in written.keys() - set(wanted):
        what = "is fixed by the premake function" if name in facts.tensors else "is not a parameter"
        hint = one_of(name, wanted)
        place.at("args", name).error(f"`{name}` {what} of `{facts.name}`", hint)
    every = {name: written.get(name) or default_source(op, launch, name) for name in wanted}
    sources = {name: source for name, source in every.items() if source is not None}
    if missing := [name for name in every if name not in sources]:
        tensors = listed((*op.inputs, *op.results, *op.temporaries))
        hint = f'write `args = {{ {missing[0]} = "..." }}`: {tensors} or a number'
        place.at("args").error(f"`{facts.name}` has no value for {listed(missing)}", hint)
    for name, source in sources.items():
        where = place.at("args", name) if name in written else place.at("args")
        _judge_kind(op, facts, name, source, where)
    _judge_shapes(op, facts, sources, place)
    _judge_writing(op, facts, sources, place)
    return sources if place.errors == errors else None


def _judge_kind(
    op: OpSpec, facts: NineToothedKernel, name: str, source: ArgumentSource, place: IssueCollector
) -> None:
    rank = facts.tensors[name].rank
    if (source.kind == "tensor") != bool(rank):
        wanted = f"a tensor with {rank} dimensions" if rank else "a number"
        place.error(f"`{name}` of `{facts.name}` is {wanted}, not `{source}`")
    elif not rank:
        for dtype in dict.fromkeys(config.dtypes[name] for config in facts.configs):
            kind = _NUMBERS.get(dtype)
            if kind is None:
                hint = f"numbers are {listed(filter(None, _NUMBERS))}"
                place.error(f"`{name}` is a `{dtype}` number, which an op cannot pass", hint)
            elif kind and kind != source.kind:
                article = "an" if source.kind == "int" else "a"
                place.error(f"`{name}` is a `{dtype}`, but `{source}` is {article} {source.kind}")
    elif source.name in op.may_be_none:
        place.error(f"`{source.name}` may be None, which NineToothed kernels do not support")


def _judge_shapes(
    op: OpSpec,
    facts: NineToothedKernel,
    sources: Mapping[str, ArgumentSource],
    place: IssueCollector,
) -> None:
    """Report tensors whose rank in the section's `shapes` is not that of the kernel."""
    shapes = IssueCollector(op.path, place.issues).at("shapes")
    for name, source in sources.items():
        rule = op.shape(source.name) if source.kind == "tensor" else None
        rank = facts.tensors[name].rank
        if rule is None or not rank:
            continue
        where = shapes.at(source.name)
        if rule.rank is None:
            hint = f"write all {rank} of them"
            where.error(f"`{source.name}` may have any number of dimensions", hint)
        elif rule.rank != rank:
            what = f"`{name}` of `{facts.name}` has {rank}"
            where.error(f"says {rule.rank} for the number of dimensions; {what}")


def _judge_writing(
    op: OpSpec,
    facts: NineToothedKernel,
    sources: Mapping[str, ArgumentSource],
    place: IssueCollector,
) -> None:
    schema = IssueCollector(op.path, place.issues).at("schema")
    allocated = (*op.results, *op.temporaries)
    written = {sources[name].name for name in facts.written if name in sources}
    for tensor in sorted(written - {*allocated, *op.schema.mutated}):
        hint = f"write `Tensor(a!) {tensor}` in the schema, or pass the result in `args`"
        schema.error(f"`{facts.name}` writes to `{tensor}`, but the schema does not say so", hint)
    if len(op.launches) == 1:
        for tensor in op.results:
            if tensor not in written:
                schema.error(f"`{facts.name}` writes nothing to the result `{tensor}`")


_WORD = re.compile(
    r"(?P<query>size|stride)\((?P<tensor>\w+), (?P<axis>\d+)\)|(?P<name>[A-Za-z_]\w*)"
)


def wide_constant(facts: NineToothedKernel, sources: Mapping[str, ArgumentSource]) -> Constant:
    """Constant that is true if an offset from a tensor's first element needs more than 32 bits."""
    reasons = [
        parse_condition(text)
        for name, tensor in facts.tensors.items()
        if tensor.rank
        for text in _far(sources[name].name, [config.shapes[name] for config in facts.configs])
    ]
    return Constant(facts.wide, None, any_of(reasons), (False, True))


def _far(tensor: str, shapes: Sequence[Sequence[int | None]]) -> Iterator[str]:
    axes = range(len(shapes[0]))
    steps = (f"(size({tensor}, {axis}) - 1) * stride({tensor}, {axis})" for axis in axes)
    yield f"{' + '.join(steps)} >= {INT32_LIMIT}"
    if any(None in shape or math.prod(filter(None, shape)) >= INT32_LIMIT for shape in shapes):
        # An expanded tensor may have more elements than memory; flattened, their number matters.
        yield f"numel({tensor}) >= {INT32_LIMIT}"
    if len(axes) > 1:
        # A tensor without elements may still have a size that exceeds 32 bits.
        for axis in axes:
            if any(shape[axis] is None for shape in shapes):
                yield f"size({tensor}, {axis}) >= {INT32_LIMIT}"


def fixed_sizes(
    op: OpSpec,
    launch: Launch,
    facts: NineToothedKernel,
    sources: Mapping[str, ArgumentSource],
    place: IssueCollector,
) -> tuple[Constant, ...] | None:
    """Return the sizes that the code is compiled for, with their values; None after an error.

    Values are a number in `shapes`, the `choices` of a constant of the section, or the dimension's
    in the op's tuning cases.
    """
    errors, constants, used = place.errors, list[Constant](), set[str]()
    for part in facts.parts:
        if part.kind not in ("fixed", "power"):
            continue
        rule = op.shape(sources[part.tensor].name)
        dim = rule.dims[part.axis] if rule is not None and rule.dims else None
        size = str(dim) if dim is not None else f"size({sources[part.tensor].name}, {part.axis})"
        exact = parse(size)
        wanted = parse(f"next_pow2({size})") if part.kind == "power" else exact
        own_constants = [c for c in launch.constants if c.expression in (wanted, exact)]
        used |= {constant.name for constant in own_constants}
        if wanted.constant is not None:
            constants.append(Constant(part.name, wanted.constant))
        elif values := tuple(dict.fromkeys(_values(op, own_constants, exact, wanted))):
            constants.append(Constant(part.name, expression=wanted, choices=values))
        else:
            # A constant may have the name of a dimension only if it is that dimension.
            name = size if size.isidentifier() else f"size_{part.axis}"
            name += "_power" * (part.kind == "power")
            message = f"`{facts.name}` is compiled for certain values of `{wanted}`"
            hint = f'{name} = {{ value = "{wanted}", choices = [...] }}'
            place.at("constants").error(message, f"write `constants = {{ {hint} }}`")
    for constant in launch.constants:
        if constant.name not in used:
            fixed_size = constant.expression if constant.expression is not None else constant.value
            message = f"`{facts.name}` is not compiled for the size `{fixed_size}`"
            place.at("constants", constant.name).error(message, "remove it")
    return tuple(constants) if place.errors == errors else None


def _values(
    op: OpSpec, own_constants: Sequence[Constant], exact: Expression, wanted: Expression
) -> Iterator[int]:
    """Yield the values of `wanted`: the section's, or powers that follow from a size's values."""
    # Values of `wanted` itself come before those that powers follow from.
    for constant in sorted(own_constants, key=lambda constant: constant.expression != wanted):
        sizes = [int(choice) for choice in constant.choices]
        yield from sizes if constant.expression == wanted else _powers(sizes)
        return
    cases = (dict(case).get(str(exact)) for case in op.tune.cases)
    sizes = [case for case in cases if isinstance(case, int)]
    yield from sizes if wanted == exact else _powers(sizes)


def _powers(sizes: Sequence[int]) -> Iterator[int]:
    return (1 << max(size - 1, 0).bit_length() for size in sizes)


def grid_expression(
    facts: NineToothedKernel, sources: Mapping[str, ArgumentSource], place: IssueCollector
) -> Expression | None:
    """Number of blocks; where configs differ, their constants select it."""
    texts: dict[str, list[str]] = {}
    for config in facts.configs:
        text = _WORD.sub(lambda match: _asked(match, sources), config.grid)
        numbers = [(n, v) for n, v in config.constants if isinstance(v, int)]
        condition = " and ".join(f"{name} == {int(value)}" for name, value in numbers)
        texts.setdefault(text, []).append(condition or "True")
    groups = [set(group) for group in texts.values()]
    if len(groups) > 1 and sum(map(len, groups)) > len(set[str]().union(*groups)):
        hint = "give the configs different integer arguments of `premake`"
        place.error(f"no integer argument selects the grid of `{facts.name}`", hint)
    try:
        return _chosen(texts)
    except ExpressionError as error:
        place.error(f"the grid of `{facts.name}` is `{facts.configs[0].grid}`: {error.message}")
        return None


def _chosen(texts: Mapping[str, list[str]]) -> Expression:
    *others, last = texts
    conditions = ([*map(parse_condition, dict.fromkeys(texts[text]))] for text in others)
    options = [*zip(map(any_of, conditions), map(parse, others), strict=True)]
    return first_of(options, parse(last)) if options else parse(last)


def _asked(match: re.Match[str], sources: Mapping[str, ArgumentSource]) -> str:
    if match["query"]:
        return f"{match['query']}({sources[match['tensor']].name}, {match['axis']})"
    source = sources.get(match["name"])
    return f"({source})" if source is not None else match["name"]


_LONG = ("int64", "uint32")
"""Dtypes of numbers that may need more than 32 bits."""


def complete_op(
    op: OpSpec, kernels: Mapping[str, NineToothedKernel], place: IssueCollector
) -> OpSpec | None:
    """Return the op with the facts that a section of a Triton kernel states; None after an error.

    Grid, arguments, constants, candidates and assumptions follow from the kernel. The section's
    dtypes, shapes and mutated tensors are compared with it.
    """
    errors = place.errors
    results = [_complete_launch(op, launch, kernels, place) for launch in op.launches]
    completed = [result for result in results if result is not None]
    if place.errors > errors:
        return None
    require = dict.fromkeys(op.require)
    require |= dict.fromkeys(each for result in completed for each in result.require)
    proposals = dict.fromkeys(each for result in completed for each in result.proposals)
    launches = tuple(result.launch for result in completed)
    tune = replace(op.tune, proposals=tuple(proposals))
    return replace(op, launches=launches, require=tuple(require), tune=tune)


@dataclass(frozen=True)
class _CompletedLaunch:
    """A launch, the conditions that it adds to the op, and sizes to tune it with."""

    launch: Launch
    require: tuple[Expression, ...]
    proposals: tuple[TuneProposal, ...]


def _complete_launch(
    op: OpSpec, launch: Launch, kernels: Mapping[str, NineToothedKernel], place: IssueCollector
) -> _CompletedLaunch | None:
    where = IssueCollector(launch.path, place.issues)
    facts = _kernel(op, launch, kernels, where.at("function"))
    sources = bind_parameters(op, launch, facts, where) if facts is not None else None
    if facts is None or sources is None:
        return None
    _judge_names(op, facts, where)
    configs = candidates_from_configs(op, facts, sources, IssueCollector(op.path, place.issues))
    own = configs.candidates
    if launch.when is not None:  # the conditions must not reject calls without this launch
        own = tuple(map(configs.with_requirements, own))
    tuned = with_candidates(op, launch, own, where)
    grid = grid_expression(facts, sources, where)
    fixed = fixed_sizes(op, launch, facts, sources, where)
    if tuned is None or grid is None or fixed is None:
        return None
    ranks = () if launch.when is not None else (*_ranks(op, facts, sources), *configs.require)
    constants = (*fixed, wide_constant(facts, sources))
    launched = _with_kernel_arguments(tuned, facts, sources)
    settled = replace(launched, grid=(grid,), constants=constants)
    return _CompletedLaunch(settled, tuple(ranks), tuning_proposals(op, facts, sources, fixed))


def _kernel(
    op: OpSpec, launch: Launch, kernels: Mapping[str, NineToothedKernel], place: IssueCollector
) -> NineToothedKernel | None:
    name = next((name for name in launch.functions if name in kernels), None)
    if name is not None:
        return kernels[name]
    hint = one_of(launch.functions[0], kernels) or "it has no `premake` with `configs`"
    place.error(f"there is no kernel `{launch.functions[0]}` in `{op.sources[0]}`", hint)
    return None


def _with_kernel_arguments(
    launch: Launch, facts: NineToothedKernel, sources: Mapping[str, ArgumentSource]
) -> Launch:
    """Return the launch with everything that follows from the kernel alone."""
    numbers = [part for part in facts.parts if part.kind in ("size", "stride")]
    scalars = [
        part.name
        for part in facts.parts
        if part.kind == "scalar" and any(c.dtypes.get(part.tensor) in _LONG for c in facts.configs)
    ]
    strides = {part.name: part for part in numbers if part.kind == "stride"}
    last = (p for p in strides.values() if p.axis == facts.tensors[p.tensor].rank - 1)
    inner = {part.name for part in last}
    outer = tuple(part.name for part in numbers if part.name not in inner)
    return replace(
        launch,
        functions=(facts.name,),
        args=tuple(_args(facts, sources)),
        autotune=False,
        divisible=tuple(dict.fromkeys((outer, tuple(n for n in outer if n in strides)))),
        ones=tuple(part.name for part in numbers if part.name in inner),
        int64=(*(part.name for part in numbers), *scalars),
    )


def _judge_names(op: OpSpec, facts: NineToothedKernel, place: IssueCollector) -> None:
    """Report constants of the kernel that have the name of something in the op."""
    taken = {size.name for size in op.sizes} | {name for name, _ in op.let}
    taken |= {argument.name for argument in op.schema.arguments} | {*op.results, *op.temporaries}
    kinds = ("constant", "fixed", "power")
    constants = {facts.wide} | {part.name for part in facts.parts if part.kind in kinds}
    for name in sorted(taken & constants):
        hint = "rename it here, e.g. in capital letters"
        place.error(f"`{name}` is a parameter of the premake function as well", hint)


def _args(
    facts: NineToothedKernel, sources: Mapping[str, ArgumentSource]
) -> Iterator[tuple[str, ArgumentSource]]:
    for part in facts.parts:
        if part.kind in ("size", "stride"):
            asked = parse(f"{part.kind}({sources[part.tensor].name}, {part.axis})")
            yield part.name, ArgumentSource("int", expression=asked)
        elif part.kind in ("pointer", "scalar"):
            source = sources[part.tensor]
            dtypes = {config.dtypes.get(part.tensor) for config in facts.configs}
            is_double = source.kind == "float" and "float64" in dtypes
            yield part.name, replace(source, double=True) if is_double else source


def _ranks(
    op: OpSpec, facts: NineToothedKernel, sources: Mapping[str, ArgumentSource]
) -> Iterator[Expression]:
    """Yield `dim(x) == 2` for arguments without a rule in the section's `shapes`."""
    for name, source in sources.items():
        if source.kind == "tensor" and op.shape(source.name) is None:
            yield parse_condition(f"dim({source.name}) == {facts.tensors[name].rank}")
