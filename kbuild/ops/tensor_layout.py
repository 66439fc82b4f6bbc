"""The layout of a whole tensor that a unit's image may assume: sizes, strides, divisors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from kbuild.ops.bound_launch import BoundLaunch, TensorFacts
from kbuild.ops.steps import ArgumentSource
from kbuild.ops.unit import KernelUnit
from kbuild.system.errors import BuildError

DIVISOR = 16
"""Divisor that aligned units assume for addresses in bytes, and for sizes and strides in
elements."""


def tensor_layout(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    """Describe the tensor that the kernel takes as `name`, for a request to a worker.

    `shape` and `strides` have a pair for each dimension: the value, None unless all calls of the
    unit have it, and what it is divisible by. A `flat` tensor of any rank is passed with one
    dimension.

    Raises:
        BuildError: the tensor may be None, or its rank is unknown.
    """
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
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dict(unit.dtypes)[source.name],
        "align": DIVISOR if unit.aligned else 0,
        "flat": facts.dims is None,
        "contiguous": facts.contiguous,
        "shape": [(None, 1)] if facts.dims is None else shape,
        "strides": [*_strides(name, facts, shape, unit)],
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
