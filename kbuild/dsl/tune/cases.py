"""The calls of an op that are measured, each with its tensors' shapes and its key.

They come from its `tune` table, from `--shapes FILE`, or are default sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import EvaluationError, Expression
from kbuild.ops.expression.nodes import Match
from kbuild.ops.model import CaseValue, OpSpec, TuneProposal, TuningCase
from kbuild.ops.schema.model import SchemaArgument, SymbolicDefault
from kbuild.ops.tuning import ELLIPSIS, read_cases
from kbuild.project.config.issue import IssueCollector, dotted, one_of
from kbuild.system.errors import ConfigError, DamagedFileError, Problem, UsageError
from kbuild.system.untrusted import parse_json, parse_toml, read_bytes, reading, reason_of


class InvalidCase(Exception):  # noqa: N818 - not an error: such a call is left out, with the reason
    """The op cannot be called like this; the argument is the reason."""


@dataclass(frozen=True)
class BenchmarkCase:
    """One call of an op to measure."""

    op: OpSpec
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype; a set for which the op has images."""
    call: TuningCase
    """The case as the section or file has it."""
    shapes: tuple[tuple[str, tuple[int, ...] | None], ...]
    """Tensor argument -> shape; None for one that is None."""
    scalars: tuple[tuple[str, CaseValue | None], ...]
    """All other arguments except dtypes."""
    key: tuple[int, ...]
    bytes: int
    """Bytes of all tensors, results included."""
    values: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Names and queries -> numbers, for conditions."""

    @property
    def label(self) -> str:
        """Text for users: `gemm M=16 N=4096 float16`."""
        sizes = " ".join(f"{name}={_extent(value)}" for name, value in self.call)
        dtypes = "/".join(dict.fromkeys(dtype for _, dtype in self.dtypes))
        return " ".join(filter(None, (self.op.name, sizes, dtypes)))

    def arguments(self) -> list[dict[str, Any]]:
        """JSON objects of the arguments in the schema's order, for the probe.

        Tensors of a list are adjacent, each with the list's name and its index.
        """
        shapes, scalars, dtypes = dict(self.shapes), dict(self.scalars), dict(self.dtypes)
        resets = dict(self.op.tune.resets)
        descriptions: list[dict[str, Any]] = []
        for argument, item in self._flat():
            name = argument.name if item is None else f"{argument.name}[{item}]"
            description: dict[str, Any] = {"name": name, "keyword": argument.keyword_only}
            if item is not None:
                description |= {"list": argument.name, "item": item}
            if name in shapes:
                description |= {"shape": shapes[name], "dtype": dtypes[name]}
                description |= {"writes": argument.type.is_mutated}
                if name in resets:
                    description |= {"reset": resets[name]}
            elif name in self.op.dtype_arguments:
                description |= {"dtype": dtypes[name]}
            else:
                description |= {"value": scalars[name]}
            descriptions.append(description)
        return descriptions

    def _flat(self) -> Iterator[tuple[SchemaArgument, int | None]]:
        for argument in self.op.schema.arguments:
            items = range(len(argument.type.items)) if argument.type.is_tensor_list else [None]
            yield from ((argument, item) for item in items)

    def holds(self, index: int, candidate: int) -> bool:
        """True if the condition of a launch's candidate holds for this call.

        Raises:
            InvalidCase: its `when` cannot be evaluated.
        """
        return self._is_true(self.op.launches[index].candidates[candidate].when)

    def launches(self, index: int) -> bool:
        """True if the call performs that launch at all; errors are those of `holds`."""
        return self._is_true(self.op.launches[index].when)

    def _is_true(self, when: Expression | None) -> bool:
        return when is None or bool(_evaluated(when, self.values))


def make_case(
    op: OpSpec, dtypes: Mapping[str, str], case: TuningCase, answers: Mapping[str, int]
) -> BenchmarkCase:
    """Return the call that a case describes.

    `answers` has the device's answers to queries such as `sm_count()`, if it is known.

    Raises:
        InvalidCase: there is no such call: shapes do not follow, or `require` is violated.
    """
    values: dict[str, int] = {f"itemsize({name})": DTYPES[dtype] for name, dtype in dtypes.items()}
    values |= answers
    values_by_name = dict(case)
    scalars = dict(_scalars(op, values_by_name))
    values |= {n: int(v) for n, v in (values_by_name | scalars).items() if isinstance(v, int)}
    compared = {a: dtypes[a] for a in op.dtype_arguments}
    compared |= {f"dtype({tensor})": dtype for tensor, dtype in dtypes.items()}
    values |= dict(_answers(op, {**scalars, **compared}))
    absent = {name for name in op.optional if values_by_name.get(name) is False}
    values |= {f"has({name})": int(name not in absent) for name in op.optional}
    for name, condition in op.returned:
        values[f"has({name})"] = int(bool(_evaluated(condition, values)))
        absent |= set() if values[f"has({name})"] else {name}
    shapes = _ShapeSolver(op, values_by_name.get(ELLIPSIS, ()), values, absent).solve()
    try:
        for condition in op.require:
            if not condition.evaluate(values):
                raise InvalidCase(f"`{condition}` does not hold")
        key = tuple(expression.evaluate(values) for expression in op.key)
    except (EvaluationError, KeyError) as error:
        raise InvalidCase(f"{error} has no value") from error
    return BenchmarkCase(
        op=op,
        dtypes=tuple(dtypes.items()),
        call=case,
        shapes=tuple((name, shapes.get(name)) for name in op.inputs),
        scalars=tuple(scalars.items()),
        key=key,
        bytes=sum(math.prod(shape) * DTYPES[dtypes[name]] for name, shape in shapes.items()),
        values=values,
    )


def _evaluated(expression: Expression, values: Mapping[str, int]) -> int:
    try:
        return expression.evaluate(values)
    except (EvaluationError, KeyError) as error:
        raise InvalidCase(f"`{expression}` has no value: {error}") from error


class _ShapeSolver:
    """Computes shapes from sizes, and sizes from shapes, until nothing changes."""

    def __init__(self, op: OpSpec, extents: Any, values: dict[str, int], absent: set[str]) -> None:
        self._op = op
        self._extents: tuple[int, ...] = tuple(extents)
        self._values = values
        self._names = [rule.tensor for rule in op.dtypes if rule.tensor not in absent]

    def solve(self) -> dict[str, tuple[int, ...]]:
        """Return shapes by tensor.

        Raises:
            InvalidCase: the shape of an argument does not follow.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        known = -1
        # A round that adds no value would be followed by another one like it.
        while known < len(self._values):
            known = len(self._values)
            for name in self._names:
                if name not in shapes and (shape := self._shape(name)) is not None:
                    shapes[name] = shape
                    self._values |= dict(_tensor_queries(name, shape))
            for name, expression in self._op.let:
                value = self._number(expression)
                if value is not None:
                    self._values[name] = value
        lacking = [name for name in self._op.inputs if name in self._names and name not in shapes]
        if lacking:
            what = f"the shape of `{lacking[0]}`"
            raise InvalidCase(f"{what} does not follow from `shapes` and the sizes")
        return shapes

    def _shape(self, name: str) -> tuple[int, ...] | None:
        rule = self._op.shape(name)
        if rule is None:
            return None
        shape: list[int] = []
        for dim in rule.dims:
            if dim is None:
                shape += self._extents
                continue
            value = self._number(dim)
            if value is None:
                return None
            shape.append(value)
        return tuple(shape)

    def _number(self, expression: Any) -> int | None:
        try:
            return int(expression.evaluate(self._values))
        except KeyError:
            return None
        except EvaluationError as error:
            raise InvalidCase(f"`{expression}`: {error}") from error


def _tensor_queries(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Yield the answers of a contiguous tensor of that shape to queries."""
    rank = len(shape)
    yield f"address({name})", 0  # aligned, as those of Torch's allocator
    yield f"numel({name})", math.prod(shape)
    yield f"dim({name})", rank
    for axis, size in enumerate(shape):
        # Torch computes strides as if empty dimensions had one element.
        stride = math.prod(max(extent, 1) for extent in shape[axis + 1 :])
        for written in (axis, axis - rank):
            yield f"size({name}, {written})", size
            yield f"stride({name}, {written})", stride


def _scalars(op: OpSpec, case: Mapping[str, Any]) -> Iterator[tuple[str, CaseValue | None]]:
    for argument in op.schema.arguments:
        if argument.type.name == "Tensor" or argument.name in op.dtype_arguments:
            continue
        name = argument.name
        if argument.type.name == "Device" and not argument.type.is_optional:
            raise InvalidCase(f"`{name}` is a device, which a case cannot give; write `Device?`")
        value: Any = case.get(name)
        if value is None and argument.default is not None:
            value = argument.default.value
            if isinstance(value, SymbolicDefault):
                raise InvalidCase(f"`{name}` is `{value}`, which a case cannot give")
        elif value is None and argument.type.name != "Device":
            raise InvalidCase(f"`{name}` has no value; give it one in `tune`")
        yield name, value


def _answers(op: OpSpec, values_by_name: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the answers to queries about arguments that are not tensors."""
    for name, value in values_by_name.items():
        yield f"has({name})", int(value is not None)
        for at, item in enumerate(value) if isinstance(value, tuple) else ():
            yield f"len({name})", len(value)
            if isinstance(item, int):
                yield f"{name}[{at}]", int(item)
                yield f"{name}[{at - len(value)}]", int(item)
        # The loop above yields nothing for an empty list.
        if value == ():
            yield f"len({name})", 0
    for expression in _expressions(op):
        for leaf in expression.leaves():
            if isinstance(leaf, Match):
                yield leaf.key, int(leaf.holds(values_by_name.get(leaf.name)))


def _expressions(op: OpSpec) -> Iterator[Expression]:
    """Yield all expressions that are evaluated for a case."""
    yield from (*op.require, *op.key, *(expression for _, expression in op.let))
    yield from (dim for rule in op.shapes for dim in rule.dims if dim is not None)
    for launch in op.launches:
        conditions = (launch.when, *(candidate.when for candidate in launch.candidates))
        yield from (condition for condition in conditions if condition is not None)


def _extent(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


MOST_BYTES = 1 << 30
"""Maximum bytes of a default call's tensors, results included."""
_POWERS = {1: range(10, 25, 2), 2: range(6, 15, 2), 3: (4, 8, 12)}
"""Number of named dimensions -> exponents of two for each; with more, all are equal."""
_EQUAL = range(4, 13, 2)
# `1 << 63` is beyond 64-bit integers.
_HIGHEST = 62


def benchmark_cases(
    op: OpSpec, dtypes: Mapping[str, str], answers: Mapping[str, int]
) -> tuple[list[BenchmarkCase], list[tuple[TuningCase, str]]]:
    """Return the calls to measure for one set of dtypes, and impossible ones with reasons."""
    cases: list[BenchmarkCase] = []
    left_out: list[tuple[TuningCase, str]] = []
    for tuning_case in op.tune.cases or default_cases(op):
        try:
            cases.append(make_case(op, dtypes, tuning_case, answers))
        except InvalidCase as reason:
            left_out.append((tuning_case, str(reason)))
    if op.tune.cases:
        return cases, left_out
    cases.sort(key=lambda case: case.bytes)
    # If all are too large, the smallest is measured nevertheless.
    small = [case for case in cases if case.bytes <= MOST_BYTES] or cases[:1]
    # The largest call of each key; a table has one winner for the key anyway.
    largest = {case.key: case for case in small}
    return list(largest.values()), [] if largest else left_out[:1]


def one_for_each_key(cases: Sequence[BenchmarkCase]) -> list[BenchmarkCase]:
    """Return the largest call for each key and set of dtypes, options and absent tensors."""
    largest: dict[Any, BenchmarkCase] = {}
    for case in sorted(cases, key=lambda case: case.bytes):
        absent = tuple(name for name, shape in case.shapes if shape is None)
        options = tuple(pair for pair in case.scalars if isinstance(pair[1], (bool, str)))
        largest[case.dtypes, case.key, absent, options] = case
    return [case for case in cases if any(case is kept for kept in largest.values())]


def default_cases(op: OpSpec) -> Iterator[TuningCase]:
    """Yield powers of two for every named dimension, and for `...`.

    The kernel's proposals are respected: sizes that it is compiled for, and upper bounds.
    """
    names = list(dict.fromkeys(size.name for size in op.sizes))
    if any(None in rule.dims for rule in op.shapes):
        names.append(ELLIPSIS)
    proposals = op.tune.proposals or (TuneProposal(),)
    cases = (case for proposal in proposals for case in _proposed(names, proposal))
    return iter(dict.fromkeys(cases))


def _proposed(names: Sequence[str], proposal: TuneProposal) -> Iterator[TuningCase]:
    fixed, bounds = dict(proposal.sizes), dict(proposal.bounds)
    free = [name for name in names if name not in fixed]
    for row in _rows(len(free)):
        powers = dict(zip(free, row, strict=True))
        sizes = {name: min(1 << n, _largest_power(bounds.get(name))) for name, n in powers.items()}
        pairs = ((name, fixed[name] if name in fixed else sizes[name]) for name in names)
        yield tuple((name, (n,) if name == ELLIPSIS else n) for name, n in pairs)


def _rows(count: int) -> Iterator[tuple[int, ...]]:
    powers = _POWERS.get(count)
    if count and powers is None:
        return ((power,) * count for power in _EQUAL)
    return itertools.product(powers or (), repeat=count)


def _largest_power(bound: int | None) -> int:
    """The largest power of two within a bound; without one, the largest of all."""
    return 1 << (bound.bit_length() - 1 if bound else _HIGHEST)


def read_shapes(path: Path, ops: Sequence[OpSpec]) -> dict[str, tuple[TuningCase, ...]]:
    """Read cases by op from a TOML or JSON file with a table for each op.

    The table has `cases` and `sizes` as in `build.toml`; a list alone means `cases`.

    Raises:
        ConfigError: the file has problems, all of which are listed.
        UsageError: there is no such file.
    """
    place = IssueCollector(())
    cases_by_op = {}
    by_name = {op.name: op for op in ops}
    for name, table in _document(path).items():
        where, op = place.at(name), by_name.get(name)
        if op is None:
            where.error(f"there is no op `{name}`", one_of(name, by_name))
            continue
        keys = table if isinstance(table, dict) else {"cases": table}
        if not _is_table(keys):
            where.error("must be a list of cases, or a table with `cases` and `sizes`")
            continue
        cases, sizes = keys.get("cases", ()), keys.get("sizes", {})
        cases_by_op[name] = read_cases(cases, sizes, op.schema, op.sizes, where)
    if place.issues:
        issues = ((dotted(issue.path), issue.message, issue.hint) for issue in place.issues)
        raise ConfigError([Problem(str(path), 0, *issue) for issue in issues])
    return cases_by_op


def _document(path: Path) -> Mapping[str, Any]:
    kind = "a table of ops"
    try:
        with reading(path, kind):
            data = read_bytes(path, kind)
            if path.suffix == ".json":
                return parse_json(data, path, kind)
            return parse_toml(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"--shapes: `{path}`: {error.strerror}") from error
    except DamagedFileError as error:
        hint = "TOML, or JSON in a file that ends with .json: `gemm = [{M = 1}]`"
        message = f"is not a table of ops: {reason_of(error)}"
        raise ConfigError([Problem(str(path), 0, "", message, hint)]) from error


def _is_table(keys: Mapping[str, Any]) -> bool:
    cases, sizes = keys.get("cases", []), keys.get("sizes", {})
    return (
        keys.keys() <= {"cases", "sizes"}
        and isinstance(cases, list)
        and all(isinstance(case, dict) for case in cases)
        and isinstance(sizes, dict)
        and all(isinstance(values, list) for values in sizes.values())
    )
