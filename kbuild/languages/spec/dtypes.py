"""The dtypes of an op's tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kbuild.config.suggest import listed, one_of
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import DtypeRule

DTYPES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}
"""Torch's names of the dtypes that kernels are compiled for -> bytes of an element."""
_ALIASES = {
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "fp8": "float8_e4m3fn",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "i8": "int8",
    "i32": "int32",
    "int": "int32",
    "i64": "int64",
    "long": "int64",
}


def read_dtypes(
    value: Any,
    inputs: Sequence[str],
    optional: Collection[str],
    allocated: Sequence[str],
    place: Place,
) -> tuple[DtypeRule, ...]:
    """A rule for each tensor; errors at `place`.

    Args:
        value: a list or one dtype for all tensors, or a table by tensor.
        inputs: the tensor arguments that are always there, then those that may be None.
        optional: the latter.
        allocated: results and temporaries.
        place: the `dtypes` key.
    """
    tensors = (*inputs, *allocated)
    if not isinstance(value, dict):
        names = value if isinstance(value, (list, tuple)) else [value]
        choices = _names(names, place)
        first = tensors[0] if tensors else ""
        others = (DtypeRule(tensor, like=first) for tensor in tensors[1:])
        return (DtypeRule(first, choices=choices), *others) if choices and first else ()
    always = [tensor for tensor in inputs if tensor not in optional]
    return _by_tensor(value, always, inputs, tensors, place)


def _by_tensor(
    table: dict[str, Any],
    always: Sequence[str],
    inputs: Sequence[str],
    tensors: Sequence[str],
    place: Place,
) -> tuple[DtypeRule, ...]:
    for name in table.keys() - set(tensors):
        place.at(name).error(f"`{name}` is not a tensor", one_of(name, tensors))
    missing = [tensor for tensor in tensors if tensor not in table]
    if missing:
        hint = f'e.g. `{missing[0]} = ["float16", "float32"]`, or the name of another tensor'
        place.error(f"no dtypes for {listed(missing)}", hint)
    written = [tensor for tensor in tensors if tensor in table]
    read = [_rule(tensor, table[tensor], tensors, place.at(tensor)) for tensor in written]
    rules = {rule.tensor: rule for rule in read if rule is not None}
    for tensor, rule in rules.items():
        known = inputs if tensor in inputs else always
        _judge(tensor, rule, rules, known, place.at(tensor))
    return tuple(rules.values())


def _rule(tensor: str, value: Any, tensors: Sequence[str], place: Place) -> DtypeRule | None:
    if isinstance(value, str):
        if value in tensors:
            return DtypeRule(tensor, like=value)
        choices = _names([value], place, tensors)
    elif isinstance(value, list):
        choices = _names(value, place)
    else:
        place.error("must be a list of dtypes, a dtype or the name of a tensor")
        return None
    return DtypeRule(tensor, choices=choices) if choices else None


def _judge(
    tensor: str,
    rule: DtypeRule,
    rules: dict[str, DtypeRule],
    known: Sequence[str],
    place: Place,
) -> None:
    seen = {tensor}
    end = rule
    while end.like:
        if end.like in seen:
            place.error(f"`{tensor}` has its own dtype")
            return
        seen.add(end.like)
        if end.like not in rules:
            return
        end = rules[end.like]
    if end.tensor not in known and len(end.choices) > 1:
        hint = "name the argument that has the same dtype, or a single dtype"
        place.error(f"nothing in a call says which dtype `{tensor}` has", hint)


def _names(values: Sequence[Any], place: Place, tensors: Sequence[str] = ()) -> tuple[str, ...]:
    """The dtypes of a list; empty after an error."""
    if not values:
        place.error("lists no dtypes")
    fine = True
    for index, value in enumerate(values):
        where = place.at(index) if len(values) > 1 else place
        if not isinstance(value, str):
            where.error("a dtype is written as a string")
        elif value in DTYPES and value not in values[:index]:
            continue
        elif value in DTYPES:
            where.error(f"`{value}` is listed twice", "keep one of them")
        else:
            known = f"write `{_ALIASES[value]}`" if value in _ALIASES else ""
            hint = known or one_of(value, (*DTYPES, *tensors))
            where.error(f"`{value}` is not a dtype", hint)
        fine = False
    return tuple(values) if fine else ()
