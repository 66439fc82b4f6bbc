"""Ordinary sizes: what is measured of an op that says nothing in its `tune` table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from kbuild.languages.spec.tuning import ELLIPSIS
from kbuild.languages.spec.values import OpSpec, TuningCase
from kbuild.tune.cases import Case, NoCase, make_case

MOST_BYTES = 1 << 30
"""Tensors of one call, results included."""
_POWERS = {1: range(10, 25, 2), 2: range(6, 15, 2), 3: (4, 8, 12)}
"""Number of dimensions -> powers of two for each; with more dimensions all are equal."""
_EQUAL = range(4, 13, 2)


def cases_of(
    op: OpSpec, dtypes: Mapping[str, str], answers: Mapping[str, int]
) -> tuple[list[Case], list[tuple[TuningCase, str]]]:
    """The calls to measure for one set of dtypes, and those that cannot be made, with reasons."""
    cases: list[Case] = []
    left_out: list[tuple[TuningCase, str]] = []
    for said in op.tune.cases or ordinary(op):
        try:
            cases.append(make_case(op, dtypes, said, answers))
        except NoCase as reason:
            left_out.append((said, str(reason)))
    if op.tune.cases:
        return cases, left_out
    small = [case for case in cases if case.bytes <= MOST_BYTES]
    # One call for each key, the largest: more say nothing about the key.
    largest = {case.key: case for case in sorted(small, key=lambda case: case.bytes)}
    return list(largest.values()), [] if largest else left_out[:1]


def ordinary(op: OpSpec) -> Iterator[TuningCase]:
    """Powers of two for every dimension that has a name, and for `...`."""
    names = list(dict.fromkeys(size.name for size in op.sizes))
    if any(None in rule.dims for rule in op.shapes):
        names.append(ELLIPSIS)
    powers = _POWERS.get(len(names))
    rows = itertools.product(powers, repeat=len(names)) if powers else None
    for row in rows if rows is not None else ((power,) * len(names) for power in _EQUAL):
        pairs = zip(names, row, strict=True)
        yield tuple((name, (1 << n,) if name == ELLIPSIS else 1 << n) for name, n in pairs)
