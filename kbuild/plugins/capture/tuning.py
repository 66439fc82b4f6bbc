"""The calls on which `kbuild tune` measures a captured op whose kernels have candidates."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kbuild.plugins.capture.programs import CapturedArgument, Step
from kbuild.plugins.capture.values import BATCH, ROWS, evaluated, names_of

_MOST_ELEMENTS = 1 << 26
"""Upper bound on the elements of the largest tensor of a call."""
_DOTS = "..."
_LARGEST = 1 << 12
"""Upper bound of a size where `sizes` allows more; doubled if keys name at most two sizes."""
_FEW = 2
_SMALLEST = 16
_POINTS = {1: 6, 2: 4, 3: 3}
"""Number of sizes that keys name -> number of values of each."""
# The number of an H100 (SXM) and an H200, for sizes that depend on it.
_SM_COUNT = 132


def tuning_sizes(
    section: Mapping[str, Any],
    arguments: Sequence[CapturedArgument],
    steps: Sequence[Step],
    bounds: Mapping[str, tuple[int, int]],
    values: Mapping[str, Sequence[Any]],
) -> dict[str, list[Any]]:
    """The `sizes` of an op's `tune` table; empty where no kernel has candidates of its own.

    Sizes that the author's keys name have several values, others one.

    `values` has those of arguments that are neither tensors nor sizes, the usual one first.
    """
    tuned = [step.step for step in steps if step.step.get("key") is not None]
    if not tuned:
        return {}
    names = {_plain(size) for a in arguments for size in a.sizes if size.isidentifier()}
    names |= {a.name for a in arguments if a.kind == "int" and a.name not in values}
    keyed = {_plain(name) for step in tuned for text in _key(step) for name in names_of(text)}
    tensors = [shape for shape in section["shapes"].values() if isinstance(shape, list)]
    sizes = _sizes(sorted(names), keyed & names, tensors, bounds)
    asked = json.dumps([step for step in section["launch"] if "function" in step])
    others: dict[str, list[Any]] = {}
    for argument in arguments:
        if argument.kind == "Tensor?" and f"has({argument.name})" in asked:
            others[argument.name] = [True, False]
        elif argument.name in values:
            every = list(values[argument.name])
            is_asked = re.search(rf"\b{argument.name}\b", asked)
            others[argument.name] = every if is_asked else every[:1]
    return {**sizes, **others}


def _plain(name: str) -> str:
    return _DOTS if name in (*BATCH, ROWS) else name


def _key(step: Mapping[str, Any]) -> Iterator[str]:
    """The author's key as expressions."""
    for name in step["key"]:
        value = step["arguments"].get(name) or step["constants"].get(name)
        if value and "int" in value:
            yield value["int"]


def _sizes(
    names: Sequence[str],
    keyed: Collection[str],
    tensors: Sequence[Sequence[Any]],
    bounds: Mapping[str, tuple[int, int]],
) -> dict[str, list[Any]]:
    spans = {name: bounds.get(name, (1, 2**31 - 1)) for name in names}
    spans = {name: (max(least, 1), max(most, 1)) for name, (least, most) in spans.items()}
    limit = _LARGEST if len(keyed) > _FEW else 2 * _LARGEST
    largest = {
        name: _below(limit if name in keyed else _LARGEST, *span) for name, span in spans.items()
    }
    floors = {name: max(span[0], min(_SMALLEST, span[1])) for name, span in spans.items()}
    while True:
        tensor = max(tensors, key=lambda shape: _elements(shape, largest), default=())
        if _elements(tensor, largest) <= _MOST_ELEMENTS:
            break
        own = {_plain(name) for size in tensor for name in _names(size)} & {*names}
        able = [name for name in own if largest[name] // 2 >= floors[name]]
        if not able:
            break
        # Sizes that no key names are halved first, of these the largest.
        name = min(able, key=lambda n: (n in keyed, -largest[n], n))
        largest[name] //= 2
    count = _POINTS.get(len(keyed), 2)
    return {
        name: _spread(max(spans[name][0], min(64, most)), most, count) if name in keyed else [most]
        for name, most in largest.items()
    }


def _below(limit: int, least: int, most: int) -> int:
    """The largest power of two within bounds, or a bound if there is none."""
    power = 1 << (min(limit, most).bit_length() - 1)
    return power if power >= least else max(least, min(limit, most))


def _spread(least: int, most: int, count: int) -> list[int]:
    """Powers of two between bounds, which are among the values."""
    low, high = math.log2(least), math.log2(most)
    powers = (1 << round(low + (high - low) * at / max(count - 1, 1)) for at in range(count))
    return sorted({min(max(power, least), most) for power in powers} | {most})


def _elements(shape: Sequence[Any], sizes: Mapping[str, int]) -> int:
    rows = sizes.get(_DOTS, 1)
    known = {**sizes, ROWS: rows, BATCH[0]: rows, "sm_count()": _SM_COUNT}
    # `...` is measured as a single dimension.
    known |= dict.fromkeys(BATCH[1:], 1)
    total = 1
    for size in shape:
        try:
            total *= rows if size == _DOTS else int(evaluated(str(size), known))
        except (ArithmeticError, KeyError, TypeError, ValueError):
            # A size that only a call can tell limits nothing.
            return 0
    return total


def _names(size: Any) -> Collection[str]:
    return {_DOTS} if size == _DOTS else names_of(str(size))


def with_tuning(op: Mapping[str, Any], table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The op with the author's own `tune` table, of its `capture` table."""
    sizes = dict(op.get("tune", {}).get("sizes", {}))
    if not sizes or not table:
        return op
    more = {key: table[key] for key in ("inputs", "rtol", "atol") if key in table}
    own = {name: list(values) for name, values in table.get("sizes", {}).items() if name in sizes}
    usual = {name: values[0] for name, values in sizes.items()}
    cases = [
        {**usual, **{name: value for name, value in case.items() if name in sizes}}
        for case in table.get("cases", ())
    ]
    # Cases replace the proposed sizes; beside `sizes` of the author's, both are measured.
    product = {"sizes": {**sizes, **own}} if own or not cases else {}
    return {**op, "tune": {**product, **({"cases": cases} if cases else {}), **more}}
