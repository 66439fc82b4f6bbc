"""From an op to its units: dtypes x candidates x {aligned, plain} x targets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbuild.languages.expression import Expression
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.values import Candidate, Constant, Launch, OpSpec, Pairs, Scalar
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit


@dataclass(frozen=True)
class _Call:
    """What is known of the calls that a unit is made for."""

    dtypes: Mapping[str, str]
    absent: tuple[str, ...]

    def values(self, optional: Sequence[str]) -> dict[str, int]:
        """The questions that it answers: which tensors are there, and how large elements are."""
        sizes = {f"itemsize({tensor})": DTYPES[dtype] for tensor, dtype in self.dtypes.items()}
        return sizes | {f"has({tensor})": int(tensor not in self.absent) for tensor in optional}


def expand(
    op: OpSpec,
    targets: Sequence[Target],
    candidates: Mapping[int, Sequence[Candidate]] | None = None,
) -> tuple[Unit, ...]:
    """Everything that is compiled for an op, each unit once, in the order of the section.

    Candidates whose `when` cannot hold for the dtypes or for tensors that are None are left out.

    Args:
        op: the op.
        targets: what to compile for.
        candidates: for launches with `configs = "autotune"`: the kernel's own, by index.

    Raises:
        ValueError: the candidates of such a launch are not given.
    """
    found: dict[str, Unit] = {}
    for index, launch in enumerate(op.launches):
        own = (candidates or {}).get(index) if launch.autotune else launch.candidates
        if own is None:
            raise ValueError(f"the candidates of launch {index} of `{op.name}` are not known")
        for candidate, call in itertools.product(own, _calls(op)):
            for unit in _units(op, index, candidate, call, targets):
                # As text, since True equals 1 but is compiled to something else.
                found.setdefault(json.dumps(unit.to_json()), unit)
    return tuple(found.values())


def _calls(op: OpSpec) -> Iterator[_Call]:
    """Every kind of call once; a tensor that is None has no dtype, so the first stands for all."""
    seen = set()
    for call in _combinations(op):
        there = tuple(pair for pair in call.dtypes.items() if pair[0] not in call.absent)
        if there not in seen:
            seen.add(there)
            yield call


def _combinations(op: OpSpec) -> Iterator[_Call]:
    for dtypes in op.dtype_sets():
        for given in itertools.product((True, False), repeat=len(op.optional)):
            absent = tuple(
                name for name, there in zip(op.optional, given, strict=True) if not there
            )
            yield _Call(dtypes, absent)


def _units(
    op: OpSpec, index: int, candidate: Candidate, call: _Call, targets: Sequence[Target]
) -> Iterator[Unit]:
    launch = op.launches[index]
    known = call.values(op.optional)
    conditions = [when for when in (launch.when, candidate.when) if when is not None]
    if any(_decided(when, known) == 0 for when in conditions):
        return
    bound = [when.bind(known) for when in conditions]
    wanted = [target for target in targets if _fits(candidate.archs, bound, target)]
    for constants in _constants(launch, candidate, known):
        for aligned, target in itertools.product(_alignments(candidate), wanted):
            yield Unit(
                language=op.language,
                kernel=op.kernel,
                op=op.name,
                launch=index,
                functions=launch.functions,
                target=target,
                dtypes=tuple(call.dtypes.items()),
                absent=call.absent,
                scalars=tuple(_scalars(op)),
                args=tuple((name, str(source)) for name, source in launch.args),
                constants=constants,
                dtype_constants=tuple(_dtypes(launch, call)),
                options=candidate.options,
                aligned=aligned,
                divisible=launch.divisible if aligned else (),
                ones=launch.ones if aligned else (),
                int64=launch.int64,
            )


def _alignments(candidate: Candidate) -> tuple[bool, ...]:
    return (True,) if candidate.aligned else (True, False)


def _fits(archs: tuple[str, ...], conditions: Sequence[Expression], target: Target) -> bool:
    """Whether a device that runs the target's code can be one that the conditions allow."""
    if archs and not target.is_one_of(archs):
        return False
    if target.kind == "ptx":  # any later device may run it
        return True
    devices = [{"capability()": number} for number in _capabilities(target)]
    return any(all(when.bind(one).constant != 0 for when in conditions) for one in devices)


def _capabilities(target: Target) -> Iterable[int]:
    """Of the devices that run a target's machine code, as `capability()` gives them."""
    arch = target.capability
    if arch is None:
        return (0,)
    first = 10 * arch.major + arch.minor
    return (first,) if arch.feature == "a" else range(first, 10 * arch.major + 10)


def _dtypes(launch: Launch, call: _Call) -> Iterator[tuple[str, str]]:
    for constant in launch.constants:
        if constant.dtype or constant.dtype_of:
            yield constant.name, constant.dtype or call.dtypes[constant.dtype_of]


def _constants(launch: Launch, candidate: Candidate, known: Mapping[str, int]) -> Iterator[Pairs]:
    """The constants of a candidate with every combination of those that calls decide."""
    numbers = {name: int(v) for name, v in candidate.constants if isinstance(v, (bool, int))}
    scalars = [one for one in launch.constants if not one.dtype and not one.dtype_of]
    values = (_values(constant, {**known, **numbers}) for constant in scalars)
    names = [constant.name for constant in scalars]
    for chosen in itertools.product(*values):
        yield (*candidate.constants, *zip(names, chosen, strict=True))


def _values(constant: Constant, known: Mapping[str, int]) -> tuple[Scalar, ...]:
    """Its values for the calls that `known` describes; none when no image is made for them."""
    if constant.expression is None:
        return () if constant.value is None else (constant.value,)
    decided = _decided(constant.expression, known)
    if decided is None:
        return constant.choices
    return tuple(choice for choice in constant.choices if int(choice) == decided)


def _decided(expression: Expression, known: Mapping[str, int]) -> int | None:
    return expression.bind(known).constant


def _scalars(op: OpSpec) -> Iterator[tuple[str, str]]:
    for argument in op.schema.arguments:
        if not argument.type.is_tensor:
            kind = argument.type.name
            yield argument.name, kind if kind in ("float", "bool") else "int"
    for name in (*(size.name for size in op.sizes), *(name for name, _ in op.let)):
        yield name, "int"
