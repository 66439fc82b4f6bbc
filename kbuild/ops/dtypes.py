"""The dtypes of an op's tensors, and the values that `zero` and `fill` give them."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kbuild.ops.model import DtypeRule
from kbuild.ops.schema.model import Schema
from kbuild.ops.steps import FillValue
from kbuild.project.config.issue import IssueCollector, listed, one_of

DTYPES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip
"""Torch's names of the dtypes that kernels are compiled for -> bytes of an element."""
_ALIASES = {
    "fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16",
    "fp32": "float32", "f32": "float32", "float": "float32",
    "fp64": "float64", "f64": "float64", "double": "float64",
    "fp8": "float8_e4m3fn", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
    "i8": "int8", "i32": "int32", "int": "int32", "i64": "int64", "long": "int64",
}  # fmt: skip


def read_dtypes(
    value: Any,
    schema: Schema,
    inputs: Sequence[str],
    allocated: Sequence[str],
    place: IssueCollector,
) -> tuple[DtypeRule, ...]:
    """Read a rule for each tensor and each dtype argument; errors are added to `place`.

    `value` is a list or one dtype for all tensors, or a table by tensor. Required tensors come
    first in `inputs`; `allocated` are results and temporaries.
    """
    optional = {a.name for a in (*schema.arguments, *schema.tensors) if a.type.is_optional}
    kinds = {a.name: a.type for a in schema.arguments}
    asked = [name for name, t in kinds.items() if t.name == "ScalarType" and not t.is_list]
    tensors = (*inputs, *allocated)
    if isinstance(value, dict):
        always = [tensor for tensor in inputs if tensor not in optional]
        return _by_tensor(value, always, inputs, (tensors, asked, optional), place)
    if asked:
        hint = f'write a table: `{asked[0]} = ["float16", "float32"]` among the tensors'
        place.error(f"does not say which dtypes `{asked[0]}` can be", hint)
        return ()
    names = value if isinstance(value, (list, tuple)) else [value]
    choices = _dtype_names(names, place)
    first = tensors[0] if tensors else ""
    others = (DtypeRule(tensor, like=first) for tensor in tensors[1:])
    return (DtypeRule(first, choices=choices), *others) if choices and first else ()


def _by_tensor(
    table: dict[str, Any],
    always: Sequence[str],
    inputs: Sequence[str],
    named: tuple[Sequence[str], Sequence[str], Collection[str]],
    place: IssueCollector,
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
    for name in (name for name in asked if name in table):
        value, maybe = table[name], name in optional
        read.append(_dtype_argument_rule(name, value, always, place.at(name), may_be_none=maybe))
    rules = {rule.tensor: rule for rule in read if rule is not None}
    for tensor, rule in rules.items():
        known = (*(inputs if tensor in inputs else always), *asked)
        _validate_rule(tensor, rule, rules, known, place.at(tensor))
    return tuple(rules.values())


def _dtype_argument_rule(
    name: str, value: Any, always: Sequence[str], place: IssueCollector, *, may_be_none: bool
) -> DtypeRule | None:
    """Rule of an argument that is a dtype; None after an error."""
    table = value if isinstance(value, dict) else {"choices": value}
    none, choices = table.get("none", ""), table.get("choices")
    if not isinstance(choices, list) or table.keys() - {"choices", "none"}:
        hint = 'e.g. `["float16", "float32"]`, or `{ choices = ["float16"], none = "x" }`'
        place.error("must be a list of dtypes", hint)
        return None
    if may_be_none != bool(none) or (none and none not in always):
        message = f"`{name}` is never None" if none and not may_be_none else ""
        tensor = always[0] if always else "x"
        hint = (
            f'`{{ choices = [ ... ], none = "{tensor}" }}`, where `none` names the tensor with '
            "that dtype"
        )
        place.error(
            message or f"the dtype for None is missing for `{name}`", hint if may_be_none else ""
        )
        return None
    dtypes = _dtype_names(choices, place)
    return DtypeRule(name, choices=dtypes, none=none) if dtypes else None


def _rule(
    tensor: str, value: Any, tensors: Sequence[str], place: IssueCollector
) -> DtypeRule | None:
    if isinstance(value, str):
        if value in tensors:
            return DtypeRule(tensor, like=value)
        choices = _dtype_names([value], place, tensors)
    elif isinstance(value, list):
        choices = _dtype_names(value, place)
    else:
        place.error("must be a list of dtypes, a dtype or the name of a tensor")
        return None
    return DtypeRule(tensor, choices=choices) if choices else None


def _validate_rule(
    tensor: str,
    rule: DtypeRule,
    rules: dict[str, DtypeRule],
    known: Sequence[str],
    place: IssueCollector,
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
        place.error(f"no argument determines the dtype of `{tensor}`", hint)


def _dtype_names(
    values: Sequence[Any], place: IssueCollector, tensors: Sequence[str] = ()
) -> tuple[str, ...]:
    """The dtypes of a list; empty after an error."""
    if not values:
        place.error("lists no dtypes")
    is_valid = True
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
        is_valid = False
    return tuple(values) if is_valid else ()


FILL_WORDS = ("inf", "-inf", "nan")
"""Fill values that are written as strings."""
_STRUCTS = {"float16": "e", "float32": "f", "float64": "d"}
_SMALL = {"float8_e4m3fn": (4, 3, 0x7E, 0x7F), "float8_e5m2": (5, 2, 0x7B, 0x7E)}
"""Bits of exponent and mantissa, the largest finite pattern, and the pattern of NaN."""
_E5M2_INFINITY = 0x7C
_BFLOAT_INFINITY, _BFLOAT_NAN = 0x7F80, 0x7FC0


def read_fills(  # noqa: PLR0917
    zero: Sequence[str],
    fill: Mapping[str, Any],
    schema: Schema,
    allocated: Sequence[str],
    contiguous: Sequence[str],
    dtypes: Sequence[DtypeRule],
    place: IssueCollector,
) -> tuple[tuple[str, FillValue], ...]:
    """Read fill values by tensor, in the section's order; errors are added to `place`, the op."""
    fills: dict[str, FillValue] = {}
    written = [(name, 0, place.at("zero", at)) for at, name in enumerate(zero)]
    written += [(name, value, place.at("fill", name)) for name, value in fill.items()]
    for name, value, where in written:
        if name in fills:
            where.error(f"`{name}` has a value already", "keep one of the two")
        elif _may_be_filled(name, schema, allocated, contiguous, where):
            number = read_fill_value(value)
            if number is None:
                hint = f"write a number, or {listed(FILL_WORDS)} in quotes"
                where.error(f"`{value}` is not a number", hint)
                continue
            wrong = first_unfit_dtype(number, dtype_choices(name, dtypes))
            if wrong:
                where.error(f"`{name}` may be {wrong}, which cannot be {value}")
            fills[name] = number
    return tuple(fills.items())


def _may_be_filled(
    name: str,
    schema: Schema,
    allocated: Sequence[str],
    contiguous: Sequence[str],
    place: IssueCollector,
) -> bool:
    if name in allocated:
        return True
    argument = schema.argument(name)
    if argument is None or not argument.type.is_tensor:
        written = [argument.name for argument in schema.arguments if argument.type.is_mutated]
        hint = one_of(name, (*allocated, *written))
        place.error(f"`{name}` is neither a result nor a temporary", hint)
    elif not argument.type.is_mutated:
        hint = "results, temporaries and `Tensor(a!)` arguments can have one"
        place.error(f"`{name}` is only read, so the op gives it no value", hint)
    elif name not in contiguous:
        hint = "list it in `contiguous`, or give it the value in Python"
        place.error(f"the argument `{name}` may have gaps, which would be filled, too", hint)
    else:
        return True
    return False


def dtype_choices(tensor: str, dtypes: Sequence[DtypeRule]) -> tuple[str, ...]:
    """The dtypes that a tensor may have; empty if they are unknown after an error."""
    rules = {rule.tensor: rule for rule in dtypes}
    rule = rules.get(tensor)
    # As often as there are rules at the most: a faulty table may lead in a circle.
    for _ in rules:
        if rule is not None and rule.like:
            rule = rules.get(rule.like)
    return rule.choices if rule is not None else ()


def read_fill_value(value: Any) -> FillValue | None:
    """Read a value of `fill` or of a hook; None if it is not a number."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value if value in FILL_WORDS else None


def first_unfit_dtype(value: FillValue, dtypes: Sequence[str]) -> str:
    """The first dtype that cannot represent a value; empty if all can."""
    return next((dtype for dtype in dtypes if bit_pattern(value, dtype) is None), "")


def bit_pattern(value: FillValue, dtype: str) -> int | None:
    """Bits of an element with that value, rounded as in Torch; None if it has none."""
    if dtype == "bool":
        return int(value) if value in (0, 1) else None
    if "float" in dtype:
        return _float_bits(float(value), dtype)
    number = float(value) if isinstance(value, str) else value
    # In this order, since `int` raises an error for NaN and for infinities.
    if number != number or math.isinf(number) or number != int(number):  # noqa: PLR0124 - NaN
        return None
    bits, integer = 8 * DTYPES[dtype], int(number)
    least = 0 if dtype.startswith("u") else -(1 << (bits - 1))
    if not least <= integer < least + (1 << bits):
        return None
    return integer % (1 << bits)


def _float_bits(value: float, dtype: str) -> int | None:
    try:
        # Torch rounds to float32 first, so that the result may be rounded twice.
        rounded_to_float32: float = value
        if dtype != "float64":
            (rounded_to_float32,) = struct.unpack("<f", struct.pack("<f", value))
        if dtype in _STRUCTS:
            return int.from_bytes(struct.pack(f"<{_STRUCTS[dtype]}", rounded_to_float32), "little")
    except OverflowError:
        return None
    if dtype != "bfloat16":
        return _small_bits(rounded_to_float32, dtype)
    single = int.from_bytes(struct.pack("<f", rounded_to_float32), "little")
    if math.isnan(value):
        return _BFLOAT_NAN
    # Round half to even: the lowest kept bit decides ties.
    rounded = single + 0x7FFF + (single >> 16 & 1) >> 16
    # A finite value must not become infinite.
    is_lost = rounded & 0x7FFF == _BFLOAT_INFINITY and math.isfinite(value)
    return None if is_lost else rounded


def _small_bits(value: float, dtype: str) -> int | None:
    """Bits of an 8-bit float, rounded to even; None if the value is too large."""
    exponent_bits, mantissa_bits, largest, nan = _SMALL[dtype]
    if math.isnan(value):
        return nan | (0x80 if dtype == "float8_e4m3fn" and math.copysign(1, value) < 0 else 0)
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return None if dtype == "float8_e4m3fn" else sign | _E5M2_INFINITY
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(math.frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    steps = round(math.ldexp(abs(value), mantissa_bits - exponent))  # Python rounds to even
    # `steps` has the leading bit of a normal number, which the sum carries into the exponent.
    bits: int = (exponent + bias - 1 << mantissa_bits) + steps
    return sign | bits if bits <= largest else None
