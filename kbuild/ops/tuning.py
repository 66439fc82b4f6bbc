"""Reads the `tune` table of an op: the calls on which `kbuild tune` measures its candidates."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbuild.ops.model import CaseValue, Dimension, TuneSpec, TuningCase
from kbuild.ops.schema.model import Schema
from kbuild.project.config.file_model import TuneSection
from kbuild.project.config.issue import IssueCollector, listed, one_of

ELLIPSIS = "..."
"""Name of the dimensions that a shape leaves open."""
MAX_CASES = 4096
_FUNCTION_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_INT64 = 2**63
_DESCRIPTIONS = {
    "size": "a size, 0 or more",
    "extents": "a size, or a list of sizes",
    "tensor": "true when it is given, false when it is None",
}


def read_tuning(
    section: TuneSection | None, schema: Schema, sizes: Sequence[Dimension], place: IssueCollector
) -> TuneSpec:
    """Read the table; errors are added at and below `place`."""
    if section is None:
        return TuneSpec()
    return TuneSpec(
        cases=read_cases(section.cases, section.sizes, schema, sizes, place),
        inputs=_function(section.inputs, place.at("inputs")),
        reference=_function(section.reference, place.at("reference")),
        rtol=_tolerance(section.rtol, place.at("rtol")),
        atol=_tolerance(section.atol, place.at("atol")),
    )


def read_cases(
    cases: Sequence[Mapping[str, Any]],
    product: Mapping[str, Sequence[Any]],
    schema: Schema,
    sizes: Sequence[Dimension],
    place: IssueCollector,
) -> tuple[TuningCase, ...]:
    """Read the cases, and all combinations of the values in `product`, each once."""
    kinds = case_kinds(schema, sizes)
    tuning_cases = [_case(case, kinds, place.at("cases", at)) for at, case in enumerate(cases)]
    count = math.prod(len(values) for values in product.values()) if product else 0
    where = place.at("sizes")
    if count > MAX_CASES:
        where.error(f"makes {count} cases, more than {MAX_CASES}", "leave some values out")
        return ()
    for name, values in product.items():
        if not values:
            where.at(name).error("lists no values")
    for row in itertools.product(*product.values()) if product else ():
        errors = where.errors
        tuning_cases.append(_case(dict(zip(product, row, strict=True)), kinds, where))
        if where.errors > errors:
            break  # the other combinations have the same problem
    return tuple(dict.fromkeys(tuning_cases))


def case_kinds(schema: Schema, sizes: Sequence[Dimension]) -> dict[str, str]:
    """Name -> kind of value in a case: `size`, a type such as `int[]`, `tensor` for `Tensor?`.

    Required values end with `!`. Dtypes have no kind: they are those of the op's `dtypes`.
    """
    kinds = {size.name: "size" for size in sizes}
    for argument in schema.arguments:
        if argument.type.name not in ("ScalarType", "Device", "Tensor"):
            name = argument.type.name
            kind = name if name in {"float", "bool", "str"} else "int"
            kinds[argument.name] = f"{kind}[]" if argument.type.is_list else kind
    kinds |= {tensor.name: "tensor" for tensor in schema.tensors if tensor.type.is_optional}
    needed = {a.name for a in schema.arguments if a.default is None}
    return {
        name: f"{kind}!" if kind == "size" or (name in needed and kind != "tensor") else kind
        for name, kind in kinds.items()
    }


def _case(case: Mapping[str, Any], kinds: Mapping[str, str], place: IssueCollector) -> TuningCase:
    for name in (name for name in case if name not in (*kinds, ELLIPSIS)):
        message = f"`{name}` is neither a dimension nor an argument"
        place.at(name).error(message, one_of(name, kinds))
    lacking = [name for name, kind in kinds.items() if kind.endswith("!") and name not in case]
    if lacking:
        place.error(f"lacks {listed(lacking)}", "a case has a value for each")
    return tuple(_values(case, kinds, place))


def _values(
    case: Mapping[str, Any], kinds: Mapping[str, str], place: IssueCollector
) -> Iterator[tuple[str, CaseValue]]:
    for name, value in case.items():
        kind = "extents" if name == ELLIPSIS else kinds.get(name, "").rstrip("!")
        if not kind:
            continue
        read = _value(value, kind)
        if read is None:
            wanted = _DESCRIPTIONS.get(kind, f"of the type {kind}")
            place.at(name).error(f"`{value}` is not {wanted}")
        else:
            yield name, read


def _value(value: Any, kind: str) -> CaseValue | None:  # noqa: PLR0911
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if kind.endswith("[]") and isinstance(value, (list, tuple)):
        items = [_value(element, kind.removesuffix("[]")) for element in value]
        return tuple(items) if None not in items else None  # type: ignore[arg-type]
    match kind:
        case "str":
            return value if isinstance(value, str) else None
        case "bool" | "tensor":
            return value if isinstance(value, bool) else None
        case "float":
            fits = (is_number or isinstance(value, float)) and math.isfinite(value)
            return float(value) if fits else None
        case "int":
            return value if is_number and -_INT64 <= value < _INT64 else None
        case "size":
            return value if is_number and 0 <= value < _INT64 else None
    many = value if isinstance(value, (list, tuple)) else [value]
    sizes = [_value(size, "size") for size in many]
    return tuple(size for size in sizes if isinstance(size, int)) if None not in sizes else None


def _function(written: str | None, place: IssueCollector) -> str:
    if written is not None and not _FUNCTION_PATH.fullmatch(written):
        place.error(f"`{written}` does not name a function", "e.g. `reference:matmul`")
    return written or ""


def _tolerance(value: Any, place: IssueCollector) -> float | None:
    if value is None:
        return None
    if not (math.isfinite(value) and value >= 0):
        place.error(f"`{value}` is not a tolerance", "e.g. 0.01")
    return float(value)
