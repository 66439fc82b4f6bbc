"""What the worker is asked for one unit: each argument as the function is to be compiled for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.errors import BuildError
from kbuild.languages.linking import constants_of
from kbuild.languages.spec.arguments import Bound, TensorFacts
from kbuild.languages.spec.values import Source
from kbuild.languages.unit import Unit

DIVISOR = 16
"""What aligned units assume: addresses in bytes, sizes and strides in elements."""


def request_of(unit: Unit, bound: Bound, version: str) -> Mapping[str, Any]:
    """See `Language.request`.

    Args:
        unit: what is compiled.
        bound: its function, with what the op says of its tensors.
        version: of the DSL.

    Raises:
        BuildError: an argument cannot be handed to a CuTe function.
    """
    return {
        "kernel": unit.kernel,
        "function": bound.function,
        "version": version,
        "arch": unit.target.arch,
        "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
        "constants": constants_of(unit, bound),
        "options": dict(unit.options),
    }


def _argument(name: str, source: Source, unit: Unit, bound: Bound) -> dict[str, Any]:
    if source.kind == "tuple":
        items = [
            _argument(f"{name}.{index}", item, unit, bound)
            for index, item in enumerate(source.items)
        ]
        return {"name": name, "kind": "tuple", "items": items}
    if source.kind == "tensor":
        return _tensor(name, source, unit, bound)
    if source.kind == "int":
        if name in unit.ones:
            return {"name": name, "kind": "one"}
        if name in unit.divisible:
            what = f"`{bound.function}`: `{name}` cannot be assumed to be divisible"
            raise BuildError(
                what, hint="name a dimension or a stride, `x.stride.0`, in `divisible`"
            )
        return {"name": name, "kind": "int", "bits": 64 if name in unit.int64 else 32}
    return {"name": name, "kind": source.kind}


def _tensor(name: str, source: Source, unit: Unit, bound: Bound) -> dict[str, Any]:
    if source.name in unit.absent:
        return {"name": name, "kind": "none"}
    facts = bound.facts(source.name)
    dtype = dict(unit.dtypes)[source.name]
    told = {"name": name, "kind": "tensor", "dtype": dtype, "align": DIVISOR if unit.aligned else 0}
    if facts.dims is None:
        if not facts.contiguous:
            what = f"`{bound.function}`: how many dimensions has `{source.name}`?"
            hint = "write them in `shapes`; or list it in `contiguous`, to hand it over as one"
            raise BuildError(what, hint=hint)
        return {**told, "kind": "flat", "shape": [{"bits": 64, "divisor": 1}], "strides": [1]}
    shape = [_size(dim, name, axis, unit) for axis, dim in enumerate(facts.dims)]
    strides = None if facts.contiguous else list(_strides(name, facts, unit))
    return {**told, "shape": shape, "strides": strides}


def _size(dim: str, name: str, axis: int, unit: Unit) -> Any:
    """A number, or what is known of it; equal names are equal sizes."""
    if dim.isdecimal():
        return int(dim)
    part = f"{name}.shape.{axis}"
    assumed = {part, dim} & set(unit.ones)
    if assumed:
        return {"one": min(assumed)}
    divisor = DIVISOR if {part, dim} & set(unit.divisible) else 1
    bits = 64 if {part, dim} & set(unit.int64) else 32
    return {"size": dim, "bits": bits, "divisor": divisor}


def _strides(name: str, facts: TensorFacts, unit: Unit) -> Iterator[Any]:
    for axis in range(len(facts.dims or ())):
        part = f"{name}.stride.{axis}"
        divisor = DIVISOR if part in unit.divisible else 1
        yield {"one": part} if part in unit.ones else {"bits": 64, "divisor": divisor}
