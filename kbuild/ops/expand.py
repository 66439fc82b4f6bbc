"""Expands an op into units: dtypes x candidates x constants x aligned or plain x targets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import Expression, ExpressionError
from kbuild.ops.expression.nodes import (
    Conditional,
    Logic,
    Match,
    Name,
    Node,
    Not,
    Number,
    Query,
    is_condition,
)
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate, Constant, DtypeName, Launch, Scalar, Value, numbers_of
from kbuild.ops.unit import ImageTarget, KernelUnit

_NUMBERS = ("int", "SymInt", "float", "bool")


@dataclass(frozen=True)
class _CallKind:
    """The calls that a unit is for: dtypes of tensors, and tensors that are None."""

    dtypes: Mapping[str, str]
    absent: tuple[str, ...]

    def values(
        self, optional: Sequence[str], arguments: Sequence[str], compared: Iterable[Match]
    ) -> dict[str, int]:
        """Answers to queries: sizes of elements, comparisons of dtypes, given tensors."""
        sizes = {f"itemsize({tensor})": DTYPES[dtype] for tensor, dtype in self.dtypes.items()}
        sizes |= {
            f"{name} == {dtype!r}": int(self.dtypes[name] == dtype)
            for name in arguments
            for dtype in DTYPES
        }
        sizes |= {
            match.key: int(self.dtypes[match.tensor] == match.value)
            for match in compared
            if match.tensor not in self.absent
        }
        sizes |= {match.key: 0 for match in compared if match.tensor in self.absent}
        return sizes | {f"has({tensor})": int(tensor not in self.absent) for tensor in optional}


def expand(
    op: OpSpec,
    targets: Sequence[ImageTarget],
    candidates: Mapping[int, Sequence[Candidate]] | None = None,
) -> tuple[KernelUnit, ...]:
    """Return all units of an op, each once, in the order of the section.

    Impossible calls are left out: sets of dtypes and absent tensors for which `require` or a
    `when` cannot hold, and constants that contradict each other, see `ConstantCombinations`.
    `candidates` are the kernel's own, by launch, where `configs = "autotune"`.

    Raises:
        ValueError: the candidates of such a launch are not given.
    """
    units: dict[str, KernelUnit] = {}
    for index, launch in enumerate(op.launches):
        launch_candidates = (candidates or {}).get(index) if launch.autotune else launch.candidates
        if launch_candidates is None:
            raise ValueError(f"the candidates of launch {index} of `{op.name}` are not known")
        compared = _compared_dtypes(op, launch, launch_candidates)
        for candidate, call in itertools.product(launch_candidates, _calls(op)):
            for unit in _units(op, index, candidate, call, targets, compared):
                # As text, since True equals 1 but is compiled differently.
                units.setdefault(json.dumps(unit.to_json()), unit)
    return tuple(units.values())


def _calls(op: OpSpec) -> Iterator[_CallKind]:
    """Yield every kind of call once; the dtype of an absent tensor makes no difference."""
    presences = [*itertools.product((True, False), repeat=len(op.may_be_none))]
    seen = set()
    for dtypes, presence in itertools.product(op.dtype_sets(), presences):
        named = zip(op.may_be_none, presence, strict=True)
        absent = tuple(name for name, is_there in named if not is_there)
        # A view of a tensor that is None is None.
        absent += tuple(view.name for view in op.views if op.viewed(view.of) in absent)
        there = tuple(pair for pair in dtypes.items() if pair[0] not in absent)
        if there not in seen:
            seen.add(there)
            yield _CallKind(dtypes, absent)


def _compared_dtypes(
    op: OpSpec, launch: Launch, candidates: Sequence[Candidate]
) -> tuple[Match, ...]:
    """Comparisons of tensors' dtypes in the expressions of a launch."""
    expressions = [*op.require, *(e for _, e in op.let), *(e for _, e in op.returned)]
    maybe = [launch.when, *(c.when for c in candidates), *(c.expression for c in launch.constants)]
    expressions += [expression for expression in maybe if expression is not None]
    leaves = (leaf for expression in expressions for leaf in expression.leaves())
    matches = (leaf for leaf in leaves if isinstance(leaf, Match) and leaf.tensor)
    return tuple(dict.fromkeys(matches))


def _units(  # noqa: PLR0917
    op: OpSpec,
    index: int,
    candidate: Candidate,
    call: _CallKind,
    targets: Sequence[ImageTarget],
    compared: Sequence[Match],
) -> Iterator[KernelUnit]:
    launch = op.launches[index]
    known = call.values(op.may_be_none, op.dtype_arguments, compared)
    known |= numbers_of(candidate.constants)
    all_conditions = [*op.require, *filter(None, (launch.when, candidate.when))]
    all_conditions += [c if name not in call.absent else c.negated() for name, c in op.returned]
    conditions = [conjunct for condition in all_conditions for conjunct in condition.conjuncts()]
    combinations = ConstantCombinations(op, launch.constants, conditions, known)
    wanted = [t for t in targets if _fits(candidate.archs, combinations.conditions, t)]
    # None stands for the plain unit, which assumes nothing.
    assumed = [*launch.divisible, *(() if candidate.aligned else (None,))]
    for chosen in combinations:
        values = tuple(_values(launch, call, chosen))
        dtypes = tuple((name, v.name) for name, v in values if isinstance(v, DtypeName))
        scalars = ((name, v) for name, v in values if not isinstance(v, DtypeName))
        constants = (*candidate.constants, *scalars)
        for divisible, target in itertools.product(assumed, wanted):
            yield KernelUnit(
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
                dtype_constants=dtypes,
                options=candidate.options,
                aligned=divisible is not None,
                divisible=divisible or (),
                ones=() if divisible is None else launch.ones,
                int64=launch.int64,
            )


def _fits(archs: tuple[str, ...], conditions: Sequence[Expression], target: ImageTarget) -> bool:
    """True if a device that runs the target's code can satisfy the conditions."""
    if archs and not target.is_one_of(archs):
        return False
    if target.kind == "ptx":  # `shipped_candidates` excludes devices with closer code
        return True
    devices = [{"capability()": number} for number in _capabilities(target)]
    return any(all(may_hold(condition, device) for condition in conditions) for device in devices)


def may_hold(condition: Expression, known: Mapping[str, int]) -> bool:
    """True unless a condition is false in every call with these values."""
    try:
        return condition.bind(known).constant != 0
    # A part without a value, such as a division by zero, may be in a branch that is not taken.
    except ExpressionError:
        return True


def _capabilities(target: ImageTarget) -> Iterable[int]:
    """Capabilities, as of `capability()`, of the devices that run a target's machine code."""
    arch = target.capability
    if arch is None:
        return (0,)
    first = 10 * arch.major + arch.minor
    # Machine code for 8.0 runs on 8.6 and 8.9 too; with `a` it runs on one capability alone.
    return (first,) if arch.feature == "a" else range(first, 10 * arch.major + 10)


def _values(
    launch: Launch, call: _CallKind, chosen: Mapping[str, Scalar]
) -> Iterator[tuple[str, Value]]:
    """Yield the launch's own constants in such calls, in the section's order."""
    for constant in launch.constants:
        name = constant.name
        if constant.dtype or constant.dtype_of:
            yield name, DtypeName(constant.dtype or call.dtypes[constant.dtype_of])
        else:
            yield name, constant.value if constant.is_fixed else constant.value_of(chosen[name])


class _KnownValues:
    """Replaces parts of expressions by their known values."""

    def __init__(self, parts: Mapping[Node, int]) -> None:
        matches = (node for node, holds in parts.items() if isinstance(node, Match) and holds)
        self._parts, self._values = parts, {node.name: node.value for node in matches}

    def __call__(self, node: Node) -> Node | None:
        """Return the number for a node; None if it is unknown."""
        known = self._parts.get(node)
        if known is None and isinstance(node, Match):
            if node.name in self._values:  # its value is known, so every comparison is
                known = int(node.holds(self._values[node.name]))
            elif self._parts.get(Query("has", node.name)) == 0:
                known = 0
        if known is None and isinstance(node, Query) and node.function == "has":
            known = 1 if node.tensor in self._values else None
        return None if known is None else Number(known, node.column, boolean=is_condition(node))


def _only_value(node: Node) -> int | None:
    """The only value that a node can have; None if there may be several."""
    match node:
        case Number():
            return node.value
        case Not():
            inner = _only_value(node.operand)
            return None if inner is None else int(not inner)
        case Logic():
            sides = [_only_value(node.left), _only_value(node.right)]
            decides = int(node.operator == "or")
            if any(side is not None and bool(side) == bool(decides) for side in sides):
                return decides
            return None if None in sides else 1 - decides
        case Conditional():
            sides = [_only_value(node.then), _only_value(node.otherwise)]
            return sides[0] if sides[0] == sides[1] else None
        case _:
            return None


def _fact(condition: Node, booleans: Container[str]) -> dict[Node, int]:
    """The part of a condition whose value follows from the condition being true, as a mapping."""
    holds = 1
    while isinstance(condition, Not):
        condition, holds = condition.operand, 1 - holds
    is_bool = is_condition(condition) or (
        isinstance(condition, Name) and condition.name in booleans
    )
    return {condition: holds} if is_bool else {}


class ConstantCombinations:
    """Iterates over the values that the constants of a launch can have in the same call.

    A constant's value fixes its expression in that call, and thereby larger expressions:
    with `K = { value = "K", choices = [64, 96] }`, `next_pow2(K)` is 64 or 128, and never 128 where
    K is 64. Combinations that contradict that, or a condition of all calls, are left out.
    """

    def __init__(
        self,
        op: OpSpec,
        constants: Sequence[Constant],
        conditions: Iterable[Expression],
        known: Mapping[str, int],
    ) -> None:
        """Take in `known` the names and queries that have the same value in all these calls."""
        self._op = op
        self._constants = {c.name: c for c in constants if c.expression is not None}
        self._let = {name: self._bound(value, known) for name, value in op.let}
        self.conditions = [self._bound(condition, known) for condition in conditions]
        """The conditions, with known values inserted."""
        booleans = {name for name, kind in _scalars(op) if kind == "bool"}
        facts = [_fact(condition.root, booleans) for condition in self.conditions]
        # Without its own fact, which would make each condition true.
        self._other_facts = [
            {
                part: value
                # Reversed, so that the first of several facts about one part is kept.
                for fact in reversed(facts[:at] + facts[at + 1 :])
                for part, value in fact.items()
            }
            for at in range(len(facts))
        ]
        """Facts that follow from the other conditions, for each condition."""
        self._own = {
            name: self._bound(constant.expression, known)
            for name, constant in self._constants.items()
            if constant.expression is not None
        }
        self._settled = {
            (name, choice): {
                self._bound(Expression("", node), known).root: value for node, value in settled
            }
            for name, constant in self._constants.items()
            # `known` is empty unless the choices are cases of a table.
            for choice, settled in zip(constant.choices, constant.known, strict=False)
        }

    def __iter__(self) -> Iterator[Mapping[str, Scalar]]:
        # Constants without choices follow from others, including later ones, so they come last.
        order = sorted(self._constants.values(), key=lambda constant: not constant.choices)
        yield from self._completed(order, {})

    def _completed(
        self, left: Sequence[Constant], values: Mapping[str, Scalar]
    ) -> Iterator[Mapping[str, Scalar]]:
        # Early: each further constant multiplies the combinations by its choices.
        if not self._agrees(values):
            return
        if not left:
            yield values
            return
        constant, *rest = left
        for value in self._possible(constant, values):
            yield from self._completed(rest, {**values, constant.name: value})

    def _possible(self, constant: Constant, values: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        if constant.choices:
            return constant.choices
        decided = self._decided(self._own[constant.name], values)
        if decided is None:
            return ()
        expression = constant.expression
        return (bool(decided) if expression and expression.is_condition else decided,)

    def _agrees(self, values: Mapping[str, Scalar]) -> bool:
        """True if there may be calls in which the constants have these values."""
        for name, value in values.items():
            decided = self._decided(self._own[name], values, but=name)
            if decided not in (None, int(value)):
                return False
        for condition, others in zip(self.conditions, self._other_facts, strict=True):
            if self._decided(condition, values, others) == 0:
                return False
        return True

    def _decided(
        self,
        expression: Expression,
        values: Mapping[str, Scalar],
        facts: Mapping[Node, int] = MappingProxyType({}),
        but: str = "",
    ) -> int | None:
        """Value of an expression, given all constants except `but`; None if it depends on more.

        `facts` are further parts of expressions with known values.
        """
        parts = dict(facts)
        names: dict[str, int] = {}
        for name, value in values.items():
            if name == but:
                continue
            parts[self._own[name].root] = int(value)
            parts |= self._settled.get((name, value), {})
            if not self._constants[name].values:
                names[name] = int(value)
        change = _KnownValues(parts)

        def value_of(operand: Expression) -> int | None:
            try:
                return _only_value(operand.mapped(change).bind(names).root)
            except ExpressionError:  # a branch that no call may reach has no value
                return None

        wanted = expression.names()
        for name, meant in self._let.items() if wanted & self._let.keys() else ():
            decided = value_of(meant)
            if decided is not None:
                names.setdefault(name, decided)
        return value_of(expression)

    def _bound(self, expression: Expression, known: Mapping[str, int]) -> Expression:
        """Insert known values, and the op's names of dimensions."""
        plain = expression.mapped(self._op.named_size)
        try:
            return plain.bind(known)
        except ExpressionError:
            return plain


def _scalars(op: OpSpec) -> Iterator[tuple[str, str]]:
    for argument in op.schema.arguments:
        kind = argument.type.name
        if not argument.type.is_tensor and not argument.type.is_list and kind in _NUMBERS:
            yield argument.name, kind if kind in ("float", "bool") else "int"
    for name in (*(size.name for size in op.sizes), *(name for name, _ in op.let)):
        yield name, "int"
