"""Tensors that have a value before the first launch: `zero` and `fill`."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.config.suggest import listed, one_of
from kbuild.languages.schema import Schema
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import DtypeRule, FillValue

WORDS = ("inf", "-inf", "nan")
"""Values that TOML's numbers are not needed for."""
_STRUCTS = {"float16": "e", "float32": "f", "float64": "d"}
_SMALL = {"float8_e4m3fn": (4, 3, 0x7E, 0x7F), "float8_e5m2": (5, 2, 0x7B, 0x7E)}
"""Bits of exponent and mantissa, the largest finite pattern, and NaN's."""
_E5M2_INFINITY = 0x7C
_BFLOAT_INFINITY, _BFLOAT_NAN = 0x7F80, 0x7FC0


def read_fills(  # noqa: PLR0917
    zero: Sequence[str],
    fill: Mapping[str, Any],
    schema: Schema,
    allocated: Sequence[str],
    contiguous: Sequence[str],
    dtypes: Sequence[DtypeRule],
    place: Place,
) -> tuple[tuple[str, FillValue], ...]:
    """Tensor -> value, in the order of the section; errors at `place`, the op.

    Args:
        zero: names of tensors.
        fill: tensor -> number, or one of `WORDS`.
        schema: of the op.
        allocated: its results and temporaries.
        contiguous: the arguments that must be contiguous.
        dtypes: one rule for each tensor.
        place: the op.
    """
    found: dict[str, FillValue] = {}
    written = [(name, 0, place.at("zero", at)) for at, name in enumerate(zero)]
    written += [(name, value, place.at("fill", name)) for name, value in fill.items()]
    for name, value, where in written:
        if name in found:
            where.error(f"`{name}` has a value already", "keep one of the two")
        elif _may_be_filled(name, schema, allocated, contiguous, where):
            number = read_value(value)
            if number is None:
                where.error(
                    f"`{value}` is not a number", f"write a number, or {listed(WORDS)} in quotes"
                )
                continue
            wrong = unfit(number, choices_of(name, dtypes))
            if wrong:
                where.error(f"`{name}` may be {wrong}, which cannot be {value}")
            found[name] = number
    return tuple(found.items())


def _may_be_filled(
    name: str,
    schema: Schema,
    allocated: Sequence[str],
    contiguous: Sequence[str],
    place: Place,
) -> bool:
    if name in allocated:
        return True
    argument = schema.argument(name)
    if argument is None or not argument.type.is_tensor:
        written = [one.name for one in schema.arguments if one.type.is_mutated]
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


def choices_of(tensor: str, dtypes: Sequence[DtypeRule]) -> tuple[str, ...]:
    """The dtypes that a tensor may have; none where that is not known, after other errors."""
    rules = {rule.tensor: rule for rule in dtypes}
    rule = rules.get(tensor)
    for _ in rules:
        if rule is not None and rule.like:
            rule = rules.get(rule.like)
    return rule.choices if rule is not None else ()


def read_value(value: Any) -> FillValue | None:
    """A value as `fill` and hooks write it; None when it is no number."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value if value in WORDS else None


def unfit(value: FillValue, dtypes: Sequence[str]) -> str:
    """The first dtype that cannot have a value; empty when all can."""
    return next((dtype for dtype in dtypes if pattern(value, dtype) is None), "")


def pattern(value: FillValue, dtype: str) -> int | None:
    """The bits of an element with that value, rounded as Torch does; None when it has none."""
    if dtype == "bool":
        return int(value) if value in (0, 1) else None
    if "float" in dtype:
        return _float_bits(float(value), dtype)
    number = float(value) if isinstance(value, str) else value
    if number != number or math.isinf(number) or number != int(number):  # noqa: PLR0124 - NaN
        return None
    bits, whole = 8 * DTYPES[dtype], int(number)
    least = 0 if dtype.startswith("u") else -(1 << (bits - 1))
    if not least <= whole < least + (1 << bits):
        return None
    return whole % (1 << bits)


def _float_bits(value: float, dtype: str) -> int | None:
    try:
        # Torch goes by way of float32, too.
        near: float = (
            value if dtype == "float64" else struct.unpack("<f", struct.pack("<f", value))[0]
        )
        if dtype in _STRUCTS:
            return int.from_bytes(struct.pack(f"<{_STRUCTS[dtype]}", near), "little")
    except OverflowError:
        return None
    if dtype != "bfloat16":
        return _small_bits(near, dtype)
    single = int.from_bytes(struct.pack("<f", near), "little")
    if math.isnan(value):
        return _BFLOAT_NAN
    rounded = single + 0x7FFF + (single >> 16 & 1) >> 16
    is_lost = rounded & 0x7FFF == _BFLOAT_INFINITY and math.isfinite(value)
    return None if is_lost else rounded


def _small_bits(value: float, dtype: str) -> int | None:
    """A float of 8 bits, rounded to even; None when it is too large."""
    exponent_bits, mantissa_bits, largest, nan = _SMALL[dtype]
    if math.isnan(value):
        return nan | (0x80 if dtype == "float8_e4m3fn" and math.copysign(1, value) < 0 else 0)
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return None if dtype == "float8_e4m3fn" else sign | _E5M2_INFINITY
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(math.frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    steps = round(math.ldexp(abs(value), mantissa_bits - exponent))  # Python rounds to even
    bits: int = (exponent + bias - 1 << mantissa_bits) + steps
    return sign | bits if bits <= largest else None
