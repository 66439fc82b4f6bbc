"""Sizes that are part of the code: the values of `T.const`, and what is tuned for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kbuild.languages.base import Function
from kbuild.languages.expression import parse
from kbuild.languages.spec.values import Constant, Launch, OpSpec, Proposal


def with_sizes(op: OpSpec, functions: Mapping[str, Function]) -> OpSpec:
    """The op with values for each `T.const` that the section does not speak of.

    They are those that the dimension has in the cases that the op is tuned for. Where it has none,
    ordinary sizes are tuned for, and of the constants those that there are objects for.

    Args:
        op: the op as the section has it.
        functions: those of its sources, by name.
    """
    launches = tuple(_with_sizes(op, launch, functions) for launch in op.launches)
    proposals = tuple(dict.fromkeys(each for one in launches for each in _proposals(op, one)))
    said = proposals if any(one.sizes for one in proposals) else ()
    return replace(op, launches=launches, tune=replace(op.tune, proposals=said))


def _with_sizes(op: OpSpec, launch: Launch, functions: Mapping[str, Function]) -> Launch:
    function = next((functions[name] for name in launch.functions if name in functions), None)
    if function is None:
        return launch
    found = tuple(_missing(op, launch, function))
    return replace(launch, constants=(*launch.constants, *found)) if found else launch


def _missing(op: OpSpec, launch: Launch, function: Function) -> Iterator[Constant]:
    candidates = function.candidates if launch.autotune else launch.candidates
    known = {constant.name for constant in launch.constants}
    known |= {name for candidate in candidates for name, _ in candidate.constants}
    for one in function.parameters:
        is_open = one.has_value and one.name not in function.facts.get("consts", ())
        if not one.is_constant or is_open or one.name in known:
            continue
        size = _called(op, launch, function.facts.get("dimensions", {}), one.name)
        values = tuple(dict.fromkeys(_values(op, size)))
        if values:
            yield Constant(one.name, expression=parse(size), choices=values)


def _called(
    op: OpSpec, launch: Launch, dimensions: Mapping[str, Sequence[str]], constant: str
) -> str:
    """What the op calls the dimension; empty when it has no name for it."""
    written = {name: source.name for name, source in launch.args if source.kind == "tensor"}
    sizes = {size.name for size in op.sizes}
    for argument, names in dimensions.items():
        rule = op.shape(written.get(argument, argument))
        dims = rule.dims if rule is not None else ()
        if None in dims or constant not in names or len(dims) != len(names):
            continue
        said = str(dims[list(names).index(constant)])
        if said in sizes:
            return said
    return ""


def _values(op: OpSpec, size: str) -> Iterator[int]:
    for case in op.tune.cases:
        value = dict(case).get(size)
        if isinstance(value, int) and not isinstance(value, bool):
            yield value


def _proposals(op: OpSpec, launch: Launch) -> Iterator[Proposal]:
    """Every combination of the sizes that a launch has objects for."""
    sizes = {size.name for size in op.sizes}
    fixed = {
        str(one.expression): [int(value) for value in one.choices]
        for one in launch.constants
        if one.choices and str(one.expression) in sizes
    }
    for values in itertools.product(*fixed.values()):
        yield Proposal(tuple(zip(fixed, values, strict=True)))
