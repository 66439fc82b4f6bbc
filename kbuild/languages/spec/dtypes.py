"""The dtypes of an op's tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kbuild.config.suggest import listed, one_of
from kbuild.languages.schema import Schema
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
    schema: Schema,
    inputs: Sequence[str],
    allocated: Sequence[str],
    place: Place,
) -> tuple[DtypeRule, ...]:
    """A rule for each tensor, and for each argument that is a dtype; errors at `place`.

    Args:
        value: a list or one dtype for all tensors, or a table by tensor.
        schema: the op's.
        inputs: the tensor arguments that are always there, then those that may be None.
        allocated: results and temporaries.
        place: the `dtypes` key.
    """
    optional = {a.name for a in (*schema.arguments, *schema.tensors) if a.type.is_optional}
    words = (a for a in schema.arguments if a.type.name == "ScalarType" and not a.type.is_list)
    asked = [argument.name for argument in words]
    tensors = (*inputs, *allocated)
    if isinstance(value, dict):
        always = [tensor for tensor in inputs if tensor not in optional]
        return _by_tensor(value, always, inputs, (tensors, asked, optional), place)
    if asked:
        hint = f'write a table: `{asked[0]} = ["float16", "float32"]` among the tensors'
        place.error(f"does not say which dtypes `{asked[0]}` can be", hint)
        return ()
    names = value if isinstance(value, (list, tuple)) else [value]
    choices = _names(names, place)
    first = tensors[0] if tensors else ""
    others = (DtypeRule(tensor, like=first) for tensor in tensors[1:])
    return (DtypeRule(first, choices=choices), *others) if choices and first else ()


def _by_tensor(
    table: dict[str, Any],
    always: Sequence[str],
    inputs: Sequence[str],
    named: tuple[Sequence[str], Sequence[str], Collection[str]],
    place: Place,
) -> tuple[DtypeRule, ...]:
    tensors, asked, optional = named
    every = (*tensors, *asked)
    for name in table.keys() - set(every):
        place.at(name).error(f"`{name}` is not a tensor", one_of(name, every))
    missing = [name for name in every if name not in table]
    if missing:
        hint = f'e.g. `{missing[0]} = ["float16", "float32"]`, or the name of another tensor'
        place.error(f"no dtypes for {listed(missing)}", hint)
    written = [tensor for tensor in tensors if tensor in table]
    read = [_rule(tensor, table[tensor], every, place.at(tensor)) for tensor in written]
    read += [
        _asked(name, table[name], always, place.at(name), may_be_none=name in optional)
        for name in asked
        if name in table
    ]
    rules = {rule.tensor: rule for rule in read if rule is not None}
    for tensor, rule in rules.items():
        known = (*(inputs if tensor in inputs else always), *asked)
        _judge(tensor, rule, rules, known, place.at(tensor))
    return tuple(rules.values())


def _asked(
    name: str, value: Any, always: Sequence[str], place: Place, *, may_be_none: bool
) -> DtypeRule | None:
    """What an argument can be that is a dtype."""
    table = value if isinstance(value, dict) else {"choices": value}
    none, choices = table.get("none", ""), table.get("choices")
    if not isinstance(choices, list) or table.keys() - {"choices", "none"}:
        hint = 'e.g. `["float16", "float32"]`, or `{ choices = ["float16"], none = "x" }`'
        place.error("must be a list of dtypes", hint)
        return None
    if may_be_none != bool(none) or (none and none not in always):
        words = f"`{name}` is never None" if none and not may_be_none else ""
        tensor = always[0] if always else "x"
        hint = f'`{{ choices = [ ... ], none = "{tensor}" }}`: the tensor whose dtype is meant then'
        place.error(words or f"what does None mean for `{name}`?", hint if may_be_none else "")
        return None
    found = _names(choices, place)
    return DtypeRule(name, choices=found, none=none) if found else None


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
