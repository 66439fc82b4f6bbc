"""Ordinary sizes: what is measured of an op that says nothing in its `tune` table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from kbuild.languages.spec.tuning import ELLIPSIS
from kbuild.languages.spec.values import OpSpec, Proposal, TuningCase
from kbuild.tune.cases import Case, NoCase, make_case

MOST_BYTES = 1 << 30
"""Tensors of one call, results included."""
_POWERS = {1: range(10, 25, 2), 2: range(6, 15, 2), 3: (4, 8, 12)}
"""Number of dimensions -> powers of two for each; with more dimensions all are equal."""
_EQUAL = range(4, 13, 2)
_HIGHEST = 62


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
    cases.sort(key=lambda case: case.bytes)
    small = [case for case in cases if case.bytes <= MOST_BYTES] or cases[:1]
    # One call for each key, the largest: more say nothing about the key.
    largest = {case.key: case for case in small}
    return list(largest.values()), [] if largest else left_out[:1]


def ordinary(op: OpSpec) -> Iterator[TuningCase]:
    """Powers of two for every dimension that has a name, and for `...`.

    What the kernel proposes is followed: sizes that it is made for, and bounds of others.
    """
    names = list(dict.fromkeys(size.name for size in op.sizes))
    if any(None in rule.dims for rule in op.shapes):
        names.append(ELLIPSIS)
    proposals = op.tune.proposals or (Proposal(),)
    return iter(dict.fromkeys(case for one in proposals for case in _proposed(names, one)))


def _proposed(names: Sequence[str], proposal: Proposal) -> Iterator[TuningCase]:
    fixed, bounds = dict(proposal.sizes), dict(proposal.bounds)
    free = [name for name in names if name not in fixed]
    for row in _rows(len(free)):
        powers = dict(zip(free, row, strict=True))
        sizes = {name: min(1 << n, _floor(bounds.get(name))) for name, n in powers.items()}
        pairs = ((name, fixed[name] if name in fixed else sizes[name]) for name in names)
        yield tuple((name, (n,) if name == ELLIPSIS else n) for name, n in pairs)


def _rows(count: int) -> Iterator[tuple[int, ...]]:
    powers = _POWERS.get(count)
    if count and powers is None:
        return ((power,) * count for power in _EQUAL)
    return itertools.product(powers or (), repeat=count)


def _floor(bound: int | None) -> int:
    """The power of two that a bound allows; the largest of all sizes where there is none."""
    return 1 << (bound.bit_length() - 1 if bound else _HIGHEST)
