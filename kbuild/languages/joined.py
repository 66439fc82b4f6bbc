"""Launches joined with the functions that they name, and what these say of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.config.issue import Issue
from kbuild.languages.base import LANGUAGES, Function
from kbuild.languages.expression import Expression, Query, parse
from kbuild.languages.hooks import followed
from kbuild.languages.spec import Bound, Launch, OpSpec, bind, read_section
from kbuild.languages.spec.keep import with_candidates
from kbuild.languages.spec.place import Place
from kbuild.languages.target import Target
from kbuild.plan import AotKernel

if TYPE_CHECKING:
    from kbuild.languages.workshop import Workshop

_AXIS = ".shape."
"""Between a tensor and an axis, in the key of a kernel that is tuned for its dimensions."""


@dataclass(frozen=True)
class Joined:
    """A launch with the function that it names."""

    launch: Launch
    """With its real candidates, also where these are the kernel's own."""
    bound: Bound
    function: Function


@dataclass(frozen=True)
class Section:
    """One kernel of a plan, with everything that its sources say."""

    kernel: AotKernel
    ops: tuple[OpSpec, ...]
    launches: Mapping[tuple[str, int], Joined]
    """By op and index."""
    notes: tuple[str, ...]
    """What of the sources' own words was not followed, one sentence each."""

    def of(self, op: OpSpec) -> list[Joined]:
        """The launches of an op."""
        return [self.launches[op.name, index] for index in range(len(op.launches))]


def joined(kernel: AotKernel, root: Path, workshop: Workshop, issues: list[Issue]) -> Section:
    """Describe the sources and join; what is wrong is added to `issues`."""
    reading = read_section(kernel.name, kernel.section)
    issues += reading.issues
    functions = workshop.describe(kernel, root, tuple(map(Target.parse, kernel.targets)))
    known = len(issues)
    place, found = Place(("kernel", kernel.name), issues), {}
    language = LANGUAGES.get(kernel.language)
    completed = (language.complete(op, functions, place) for op in reading.ops)
    ops = [op for op in completed if op is not None]
    for op in ops:
        for index, launch in enumerate(op.launches):
            one = _join(op, launch, functions, place)
            if one is not None:
                found[op.name, index] = one
    notes: list[str] = []
    for at, op in enumerate(ops):
        own = [found[op.name, i] for i in range(len(op.launches)) if (op.name, i) in found]
        notes += [note for one in own for note in _notes(one)]
        keyed, said = with_key(op, own)
        ops[at] = followed(keyed, own, place)
        notes += said
    notes += [issue.message for issue in issues[known:] if issue.severity == "warning"]
    told = tuple(dict.fromkeys(f"kernel.{kernel.name}: {note}" for note in notes))
    return Section(kernel, tuple(ops), found, told)


def _join(
    op: OpSpec, launch: Launch, functions: Mapping[str, Function], outer: Place
) -> Joined | None:
    place = Place(launch.path, outer.issues)
    function = next((functions[name] for name in launch.functions if name in functions), None)
    whole = _with_own(op, launch, function, place) if function else launch
    if whole is None:
        return None
    known = {name: one.parameters for name, one in functions.items()}
    bound = bind(op, whole, known, place)
    if bound is None or function is None:
        return None
    return Joined(whole, bound, function)


def _with_own(op: OpSpec, launch: Launch, function: Function, place: Place) -> Launch | None:
    return with_candidates(op, launch, function.candidates, place, "; ".join(function.notes))


def _notes(one: Joined) -> Iterator[str]:
    """Those about candidates say nothing where the section lists its own."""
    if one.launch.autotune or not one.function.candidates:
        yield from one.function.notes


def with_key(op: OpSpec, launches: Sequence[Joined]) -> tuple[OpSpec, list[str]]:
    """The op with the key of `@triton.autotune` where it says none, and what is left out of that.

    Args:
        op: the op.
        launches: its launches; those with the kernel's own candidates have the kernel's own key.
    """
    tuned = [one for one in launches if one.launch.autotune]
    if op.key or not tuned:
        return op, []
    found: dict[str, Expression] = {}
    notes = []
    for one in tuned:
        for name in one.function.key:
            if _is_fixed(one, name):
                continue
            expression = _told(op, one, name)
            if expression is None and _AXIS in name:
                continue  # a number, or what has no name
            if expression is None:
                words = f"has `{name}` in its key, which is no integer of the call: left out"
                notes.append(f"`{one.function.name}` {words}")
            else:
                found.setdefault(str(expression), expression)
    return replace(op, key=tuple(found.values())), notes


def _dimension(op: OpSpec, bound: Bound, text: str) -> Expression | None:
    """What `x.shape.0` is called in the op; of a tensor of any shape, how many elements it has."""
    argument, _, axis = text.partition(_AXIS)
    source = dict(bound.arguments).get(argument)
    if not axis or source is None or source.name not in op.inputs:
        return None
    rule = op.shape(source.name)
    dims = rule.dims if rule is not None else (None,)
    if None in dims:
        return parse(f"numel({source.name})")
    found = dims[int(axis)] if int(axis) < len(dims) else None
    return None if found is None or found.constant is not None else found


def _is_fixed(one: Joined, name: str) -> bool:
    """Whether it is a constant that calls do not decide, dtypes aside, which tables tell apart."""
    if name not in one.bound.constants:
        return False
    own = next((constant for constant in one.launch.constants if constant.name == name), None)
    return name not in one.function.computed if own is None else own.expression is None


def _told(op: OpSpec, one: Joined, argument: str) -> Expression | None:
    """What a kernel's argument is in terms of the call, before anything is allocated."""
    constants = {constant.name: constant.expression for constant in one.launch.constants}
    source = dict(one.bound.arguments).get(argument)
    if source is None and argument not in constants:
        return _dimension(op, one.bound, argument)
    expression = constants[argument] if source is None else source.expression
    if expression is None:
        return None
    known = {size.name for size in op.sizes} | {name for name, _ in op.let}
    known |= {argument.name for argument in op.schema.arguments if not argument.type.is_tensor}
    for leaf in expression.leaves():
        if isinstance(leaf, Query):
            if leaf.tensor and leaf.tensor not in op.inputs:
                return None
        elif leaf.name not in known:
            return None
    return expression
