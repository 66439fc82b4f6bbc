"""Calls of an op that are measured: shapes, numbers, and the key that they have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbuild.languages.expression import EvaluationError, Expression
from kbuild.languages.expression.nodes import Match
from kbuild.languages.schema.values import Argument, Default, Symbol
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.tuning import ELLIPSIS
from kbuild.languages.spec.values import Extent, OpSpec, TuningCase


class NoCase(Exception):  # noqa: N818 - not an error: such a call is left out, with the reason
    """Why there is no such call."""


@dataclass(frozen=True)
class Case:
    """One call of an op."""

    op: OpSpec
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype, as the op's images are made for."""
    said: TuningCase
    """The case as it was written."""
    shapes: tuple[tuple[str, tuple[int, ...] | None], ...]
    """Tensor argument -> shape; None for one that is None."""
    scalars: tuple[tuple[str, Extent | None], ...]
    """Other arguments, but dtypes."""
    key: tuple[int, ...]
    bytes: int
    """Of all tensors, results included."""
    values: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Names and questions -> numbers, for `when`."""

    @property
    def label(self) -> str:
        """What the user is told: `gemm M=16 N=4096 float16`."""
        sizes = " ".join(f"{name}={_extent(value)}" for name, value in self.said)
        dtypes = "/".join(dict.fromkeys(dtype for _, dtype in self.dtypes))
        return " ".join(filter(None, (self.op.name, sizes, dtypes)))

    def arguments(self) -> list[dict[str, Any]]:
        """The arguments in the schema's order, as the probe takes them.

        Tensors of a list follow one another, each with the list's name and its place there.
        """
        shapes, scalars, dtypes = dict(self.shapes), dict(self.scalars), dict(self.dtypes)
        resets = dict(self.op.tune.resets)
        found: list[dict[str, Any]] = []
        for argument, item in self._flat():
            name = argument.name if item is None else f"{argument.name}[{item}]"
            one: dict[str, Any] = {"name": name, "keyword": argument.keyword_only}
            if item is not None:
                one |= {"list": argument.name, "item": item}
            if name in shapes:
                one |= {"shape": shapes[name], "dtype": dtypes[name]}
                one |= {"writes": argument.type.is_mutated}
                if name in resets:
                    one |= {"reset": resets[name]}
            elif name in self.op.dtype_arguments:
                one |= {"dtype": dtypes[name]}
            else:
                one |= {"value": scalars[name]}
            found.append(one)
        return found

    def _flat(self) -> Iterator[tuple[Argument, int | None]]:
        for argument in self.op.schema.arguments:
            items = range(len(argument.type.items)) if argument.type.is_tensor_list else [None]
            yield from ((argument, item) for item in items)

    def holds(self, index: int, candidate: int) -> bool:
        """True when the candidate of a launch is meant for this call.

        Raises:
            NoCase: its `when` has no value.
        """
        return self._is_true(self.op.launches[index].candidates[candidate].when)

    def launches(self, index: int) -> bool:
        """True when the call makes that launch at all.

        Raises:
            NoCase: its `when` has no value.
        """
        return self._is_true(self.op.launches[index].when)

    def _is_true(self, when: Expression | None) -> bool:
        return when is None or bool(_evaluated(when, self.values))


def make_case(
    op: OpSpec, dtypes: Mapping[str, str], said: TuningCase, answers: Mapping[str, int]
) -> Case:
    """The call that a case describes.

    Args:
        op: the op.
        dtypes: one of `op.dtype_sets()`.
        said: a value for each dimension.
        answers: what expressions ask about the device, such as `sm_count()`, as far as it is known.

    Raises:
        NoCase: there is no such call: shapes that are not described, or a broken `require`.
    """
    values: dict[str, int] = {f"itemsize({name})": DTYPES[dtype] for name, dtype in dtypes.items()}
    values |= answers
    scalars = dict(_scalars(op, dict(said)))
    values |= {name: int(v) for name, v in dict(said).items() if isinstance(v, int)}
    values |= {name: int(v) for name, v in scalars.items() if isinstance(v, int)}
    values |= dict(_answers(op, {**scalars, **{a: dtypes[a] for a in op.dtype_arguments}}))
    given = dict(said)
    absent = {name for name in op.optional if given.get(name) is False}
    values |= {f"has({name})": int(name not in absent) for name in op.optional}
    for name, condition in op.returned:
        values[f"has({name})"] = int(bool(_evaluated(condition, values)))
        absent |= set() if values[f"has({name})"] else {name}
    shapes = _Shapes(op, given.get(ELLIPSIS, ()), values, absent).found()
    try:
        for condition in op.require:
            if not condition.evaluate(values):
                raise NoCase(f"`{condition}` does not hold")
        key = tuple(expression.evaluate(values) for expression in op.key)
    except (EvaluationError, KeyError) as error:
        raise NoCase(f"{error} has no value") from error
    return Case(
        op=op,
        dtypes=tuple(dtypes.items()),
        said=said,
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
        raise NoCase(f"`{expression}` has no value: {error}") from error


class _Shapes:
    """Shapes and the numbers that follow from them, until nothing more follows."""

    def __init__(self, op: OpSpec, extents: Any, values: dict[str, int], absent: set[str]) -> None:
        self._op = op
        self._extents: tuple[int, ...] = tuple(extents)
        self._values = values
        self._names = [rule.tensor for rule in op.dtypes if rule.tensor not in absent]

    def found(self) -> dict[str, tuple[int, ...]]:
        """Tensor -> shape.

        Raises:
            NoCase: that of an argument does not follow.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        known = -1
        while known < len(self._values):
            known = len(self._values)
            for name in self._names:
                if name not in shapes and (shape := self._shape(name)) is not None:
                    shapes[name] = shape
                    self._values |= dict(_questions(name, shape))
            for name, expression in self._op.let:
                value = self._number(expression)
                if value is not None:
                    self._values[name] = value
        lacking = [name for name in self._op.inputs if name in self._names and name not in shapes]
        if lacking:
            raise NoCase(f"the shape of `{lacking[0]}` does not follow from `shapes` and the sizes")
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
            raise NoCase(f"`{expression}`: {error}") from error


def _questions(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """What a contiguous tensor of that shape answers."""
    rank = len(shape)
    yield f"address({name})", 0  # the allocator's are divisible by all that is asked about
    yield f"numel({name})", math.prod(shape)
    yield f"dim({name})", rank
    for axis, size in enumerate(shape):
        stride = math.prod(max(extent, 1) for extent in shape[axis + 1 :])
        for written in (axis, axis - rank):
            yield f"size({name}, {written})", size
            yield f"stride({name}, {written})", stride


def _scalars(op: OpSpec, said: Mapping[str, Any]) -> Iterator[tuple[str, Extent | None]]:
    for argument in op.schema.arguments:
        if argument.type.name == "Tensor" or argument.name in op.dtype_arguments:
            continue
        if argument.type.name == "Device" and not argument.type.is_optional:
            raise NoCase(f"`{argument.name}` is a device, which no case can say; write `Device?`")
        value: Any = said.get(argument.name)
        if value is None and isinstance(argument.default, Default):
            default = argument.default.value
            if isinstance(default, Symbol):
                raise NoCase(f"`{argument.name}` is `{default}`, which no case can say")
            value = default
        elif value is None and argument.type.name != "Device":
            raise NoCase(f"nothing says what `{argument.name}` is; name it in `tune`")
        yield argument.name, value


def _answers(op: OpSpec, given: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What expressions ask of arguments that are no tensors."""
    for name, value in given.items():
        yield f"has({name})", int(value is not None)
        for at, item in enumerate(value) if isinstance(value, tuple) else ():
            yield f"len({name})", len(value)
            if isinstance(item, int):
                yield f"{name}[{at}]", int(item)
                yield f"{name}[{at - len(value)}]", int(item)
        if value == ():
            yield f"len({name})", 0
    for expression in _expressions(op):
        for leaf in expression.leaves():
            if isinstance(leaf, Match):
                yield leaf.key, int(given.get(leaf.name) == leaf.value)


def _expressions(op: OpSpec) -> Iterator[Expression]:
    """All that are evaluated for a case."""
    yield from (*op.require, *op.key, *(one for _, one in op.let))
    yield from (dim for rule in op.shapes for dim in rule.dims if dim is not None)
    for launch in op.launches:
        conditions = (launch.when, *(one.when for one in launch.candidates))
        yield from (one for one in conditions if one is not None)


def _extent(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
