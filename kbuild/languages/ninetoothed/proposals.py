"""The sizes that a kernel's configs are made for, for tuning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from kbuild.languages.expression import parse
from kbuild.languages.ninetoothed.facts import Config, Facts
from kbuild.languages.spec.values import Constant, OpSpec, Proposal, Source


def proposals_of(
    op: OpSpec, facts: Facts, sources: Mapping[str, Source], fixed: Sequence[Constant]
) -> tuple[Proposal, ...]:
    """What the kernel says of the op's dimensions; nothing where it says nothing.

    Args:
        op: its shapes name the dimensions.
        facts: the kernel.
        sources: what the application's parameters are.
        fixed: the sizes that the code is made for.
    """
    named = list(_named(op, facts, sources))
    bounds = _bounds(facts, named)
    found = (
        Proposal(tuple(sizes.items()), tuple(_rest(bounds, sizes)))
        for config in facts.configs
        for chosen in _chosen(op, fixed)
        if (sizes := chosen | _sizes(config, named)) or bounds
    )
    return tuple(dict.fromkeys(found))


def _named(
    op: OpSpec, facts: Facts, sources: Mapping[str, Source]
) -> Iterator[tuple[str, int, str]]:
    """Parameter of the application, axis, and what the op calls that dimension."""
    names = {size.name for size in op.sizes}
    for parameter, source in sources.items():
        rule = op.shape(source.name) if source.kind == "tensor" else None
        dims = rule.dims if rule is not None and facts.tensors[parameter].rank else ()
        for axis, dim in enumerate(dims):
            if str(dim) in names:
                yield parameter, axis, str(dim)


def _bounds(facts: Facts, named: list[tuple[str, int, str]]) -> dict[str, int]:
    """The least `upper_bound` of each dimension."""
    found: dict[str, int] = {}
    for parameter, axis, name in named:
        bound = facts.tensors[parameter].bounds[axis]
        if bound is not None:
            found[name] = min(bound, found.get(name, bound))
    return found


def _sizes(config: Config, named: list[tuple[str, int, str]]) -> dict[str, int]:
    sizes = ((name, config.shapes[parameter][axis]) for parameter, axis, name in named)
    return {name: size for name, size in sizes if size is not None}


def _chosen(op: OpSpec, fixed: Sequence[Constant]) -> Iterator[dict[str, int]]:
    """Every combination of sizes that there are images for; a power of two is such a size."""
    values: dict[str, list[int]] = {}
    for one in fixed:
        for size in op.sizes:
            if one.expression in (parse(size.name), parse(f"next_pow2({size.name})")):
                values.setdefault(size.name, [int(choice) for choice in one.choices])
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _rest(bounds: Mapping[str, int], sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((name, bound) for name, bound in bounds.items() if name not in sizes)
