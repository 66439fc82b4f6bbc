"""Hooks of a kernel's own autotuning, followed: what the op does in their place.

`kbuild.languages.worker.hooks` says what each one does. What a candidate's hook does before every
launch, the op does before its first one, as for `zero` and `fill`. What the tuner's own hooks do
while it measures is done by `kbuild tune`; a result that they zero is zeroed by the op as well,
since a new tensor is nothing that a call before it could have zeroed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbuild.languages.expression import EvaluationError
from kbuild.languages.launcher.variants import candidate_of
from kbuild.languages.spec import Bound, OpSpec, Source
from kbuild.languages.spec.fills import choices_of, read_value, unfit
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Candidate, FillValue

if TYPE_CHECKING:
    from kbuild.languages.joined import Joined

_SELF = "list the candidates in `configs`, and what has to be zeroed in `zero`"
"""How to do without hooks."""


def followed(op: OpSpec, launches: Sequence[Joined], issues: Place) -> OpSpec:
    """The op with the values that hooks give to tensors, before launches and while tuning.

    Args:
        op: the op.
        launches: all of them, in order.
        issues: collects what cannot be followed.
    """
    resets: dict[str, FillValue] = {}
    for index, one in enumerate(launches):
        if not one.function.facts.get("hooks"):
            continue
        place = Place((*one.launch.path, "configs"), issues.issues)
        if not _can_be_followed(one, place):
            continue
        _judge_blocks(one, place)
        fills, own = _Fills(op, launches[:index], one, place), dict(op.fills)
        for tensor, value in fills.before_launches():
            if tensor not in own:
                own[tensor] = value
            elif own[tensor] != value:
                place.error(
                    f"hooks of `{one.function.name}` fill `{tensor}` with {value}, the op with "
                    f"{own[tensor]}",
                    "say the same in both",
                )
        resets |= fills.resets
        op = replace(op, fills=tuple(own.items()))
    return replace(op, tune=replace(op.tune, resets=tuple(resets.items()))) if resets else op


def _said(one: Joined) -> Mapping[str, Any]:
    found: Mapping[str, Any] = one.function.facts["hooks"]
    return found


def _can_be_followed(one: Joined, place: Place) -> bool:
    """Whether all hooks are known; an error where they matter, else a warning."""
    problems = _said(one)["problems"]
    for problem in problems:
        words = f"hooks of `{one.function.name}` cannot be followed: {problem}"
        if one.launch.autotune:
            place.error(words, _SELF)
        else:
            place.warning(f"{words}; they are left out, since `configs` lists the candidates")
    return not problems


def _records(one: Joined) -> Iterator[tuple[Candidate, Mapping[str, Any] | None]]:
    """The launch's candidates, each with what its hook does; None for one of the section's own."""
    kind = any(source.kind == "descriptor" for _, source in one.bound.arguments)
    for candidate in one.launch.candidates:
        at = candidate_of(one.function.candidates, candidate.constants, candidate.options)
        yield candidate, _said(one)["configs"][at][kind] if at is not None else None


def _judge_blocks(one: Joined, place: Place) -> None:
    """A descriptor's block in the section has to be the one that a hook sets."""
    sources = dict(one.bound.arguments)
    fixed = tuple((c.name, c.value) for c in one.launch.constants if c.value is not None)
    for candidate, record in _records(one):
        for name, dims in record["blocks"] if record is not None else ():
            source = sources.get(name)
            constants = dict((*candidate.constants, *fixed))
            wanted = tuple(constants.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
            given = _block(source, constants)
            if given != wanted:
                own = f"gives it {list(given)}" if given else "hands it over without a block"
                place.error(
                    f"a hook of `{one.function.name}` gives `{name}` the block {list(wanted)}, the "
                    f"section {own}",
                    f'write `args = {{ {name} = {{ tensor = "...", block = [...] }} }}`',
                )
                return


def _block(source: Source | None, constants: Mapping[str, Any]) -> tuple[int, ...]:
    if source is None or source.kind != "descriptor":
        return ()
    try:
        return source.block_shape(tuple(constants.items()))
    except (EvaluationError, KeyError):
        return ()


class _Fills:
    """What the hooks of one launch give a value."""

    def __init__(self, op: OpSpec, earlier: Sequence[Joined], one: Joined, place: Place) -> None:
        self._op, self._earlier, self._one, self._place = op, earlier, one, place
        self._own = (*op.results, *op.temporaries)
        self.resets: dict[str, FillValue] = {}
        """Arguments that have a value while candidates are measured."""
        self._odd: list[str] = []

    def before_launches(self) -> Iterator[tuple[str, FillValue]]:
        """Tensor -> value; errors for those that no op can give one."""
        for tensor, value in self._tensors(_said(self._one)["reset"]):
            if tensor in self._own:
                yield from self._judged(tensor, {value})
            else:
                self.resets[tensor] = value
        found: dict[str, list[FillValue | None]] = {}
        records = [record for _, record in _records(self._one)]
        for at, record in enumerate(self._known(records)):
            for tensor, value in self._tensors(record["fills"]):
                found.setdefault(tensor, [None] * len(records))[at] = value
        for tensor, values in found.items():
            yield from self._judged(tensor, set(values))

    def _known(self, records: Sequence[Mapping[str, Any] | None]) -> Iterator[Mapping[str, Any]]:
        """For candidates that the kernel does not have: what all of its own agree on."""
        every = [one[0]["fills"] for one in _said(self._one)["configs"]]
        shared = every[0] if every and all(one == every[0] for one in every) else None
        unclear = any(every) and shared is None and None in records
        if unclear:
            self._place.warning(
                f"candidates of `{self._one.function.name}` have hooks that fill tensors, and "
                "`configs` lists others",
                "name in `zero` or `fill` what has to have a value",
            )
        yield from ({"fills": shared or ()} if one is None else one for one in records)

    def _tensors(self, fills: Sequence[Sequence[Any]]) -> Iterator[tuple[str, FillValue]]:
        sources, known = dict(self._one.bound.arguments), self._one.bound.constants
        for name, value in fills:
            source, number = sources.get(name), read_value(value)
            if source is not None and source.kind in ("tensor", "descriptor"):
                if number is not None:
                    yield source.name, number
            elif name not in (*known, *self._odd):
                self._odd.append(name)
                words = f"hooks of `{self._one.function.name}` fill `{name}`, which is no tensor"
                self._place.error(words, _SELF)

    def _judged(
        self, tensor: str, values: set[FillValue | None]
    ) -> Iterator[tuple[str, FillValue]]:
        """The value of a tensor, where the op can give it one."""
        name, given = self._one.function.name, sorted(map(str, values - {None}))
        (first, *others) = [value for value in values if value is not None]
        is_result = tensor in self._own
        argument = self._op.schema.argument(tensor)
        before = [one.bound.function for one in self._earlier if _takes(one.bound, tensor)]
        wrong = unfit(first, choices_of(tensor, self._op.dtypes))
        if others:
            problem = f" with {' and '.join(given)}, by candidate", _SELF
        elif wrong:
            problem = f" with {given[0]}, but it may be {wrong}", "leave that dtype out"
        elif before:
            problem = f" after `{before[0]}` has run with it", "launch it from another op"
        elif is_result:
            yield tensor, first
            return
        elif argument is None or not argument.type.is_mutated:
            problem = ", which the op only reads", f"write `Tensor(a!) {tensor}` in the schema"
        elif None in values or self._one.launch.when is not None:
            problem = " in some calls", _SELF
        elif tensor not in self._op.contiguous:
            problem = ", which may have gaps", "list it in `contiguous`"
        else:
            yield tensor, first
            return
        self._place.error(f"hooks of `{name}` fill `{tensor}`{problem[0]}", problem[1])


def _takes(bound: Bound, tensor: str) -> bool:
    return any(source.name == tensor for _, source in bound.flat())
