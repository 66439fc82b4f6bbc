"""A kernel whose launches are bound to its functions and, once compiled, have their images."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

from kbuild.dsl.launcher.images import Slot, assumed_slots, slot_of
from kbuild.ops.bound_launch import BoundLaunch, tensors_used
from kbuild.ops.image import UnitImage
from kbuild.ops.language import KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate, Constant, ConstantPairs, DtypeName, Launch, Value
from kbuild.ops.unit import KernelUnit
from kbuild.plan.plan import AotKernel


@dataclass(frozen=True)
class LaunchVariant:
    """All images of one candidate for one kind of call."""

    combination: int
    candidate: int
    """Index into `ResolvedLaunch.candidates`."""
    constants: tuple[int, ...]
    """Values of the constants that calls decide, in the order of `decided`."""
    compiled: tuple[UnitImage, ...]


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch, bound to the kernel function that it names, with its images once it is compiled."""

    op: OpSpec
    launch: Launch
    """The launch with its final candidates, which are the kernel's own if it is autotuned."""
    bound: BoundLaunch
    function: KernelFunction
    compiled: tuple[UnitImage, ...] = ()

    @cached_property
    def decided(self) -> tuple[Constant, ...]:
        """The constants that calls decide."""
        return tuple(c for c in self.launch.constants if c.expression is not None)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """All values that some image takes or assumes something about."""
        slots: dict[Slot, None] = {}
        for unit_image in self.compiled:
            image = unit_image.image
            slots |= {slot_of(p): None for p in image.parameters if p.name}
            slots |= dict.fromkeys(assumed_slots(image))
        bound = self.bound
        try:
            _ = [bound.source(slot.argument) for slot in slots]
        except KeyError as error:
            message = f"images of `{bound.function}` take `{error.args[0]}`, which nothing gives"
            raise ValueError(message) from error
        places = {name: at for at, (name, _) in enumerate(bound.arguments)}

        def order(slot: Slot) -> tuple[int, str, str]:
            place = places.get(slot.argument.partition(".")[0], len(places))
            return place, slot.argument, slot.form

        return tuple(sorted(slots, key=order))

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """Indices of the candidates that have images."""
        every = enumerate(self.launch.candidates)
        units = [unit_image.unit for unit_image in self.compiled]
        return tuple(at for at, c in every if any(is_compiled_for(c, unit) for unit in units))

    @cached_property
    def is_conditional(self) -> bool:
        """True if some builds may have no image because no device meets the conditions."""
        launch = self.launch
        candidates = (c.when is not None or bool(c.archs) for c in launch.candidates)
        return bool(self.op.require) or launch.when is not None or all(candidates)

    @cached_property
    def variants(self) -> tuple[LaunchVariant, ...]:
        """All variants, sorted by kind of call, candidate and constants."""
        images_by_key: dict[tuple[int, int, tuple[int, ...]], list[UnitImage]] = {}
        for compiled in self.compiled:
            unit, every = compiled.unit, self.launch.candidates
            candidates = [
                i for i, at in enumerate(self.candidates) if is_compiled_for(every[at], unit)
            ]
            for key in itertools.product(
                self._combinations(unit), candidates, self._constants(unit)
            ):
                images_by_key.setdefault(key, []).append(compiled)
        return tuple(
            LaunchVariant(*key, tuple(images))
            # By the keys alone, since images have no order.
            for key, images in sorted(images_by_key.items(), key=itemgetter(0))
        )

    def tier(self, compiled: UnitImage) -> int:
        """Rank of an image: calls try higher ones first; 0 is for images that fit every call."""
        image, sets = compiled.image, self.launch.divisible
        if not image.divisible and not image.ones:
            return 0
        return len(sets) - sets.index(compiled.unit.divisible)

    def spans(self) -> list[int]:
        """First variant of each (kind of call, candidate) in order, and the end."""
        count = count_call_kinds(self.op) * len(self.candidates)
        offsets = [0] * (count + 1)
        for variant in self.variants:
            offsets[variant.combination * len(self.candidates) + variant.candidate + 1] += 1
        # Sums turn the numbers of variants into the position of the first one of each pair.
        for at in range(count):
            offsets[at + 1] += offsets[at]
        return offsets

    def _constants(self, unit: KernelUnit) -> Iterator[tuple[int, ...]]:
        """Yield the decisions of calls that lead to the unit; several may have the same value."""
        values: dict[str, Value] = dict(unit.constants)
        values |= {name: DtypeName(dtype) for name, dtype in unit.dtype_constants}
        choices = (_choices(constant, values[constant.name]) for constant in self.decided)
        return itertools.product(*choices)

    def _combinations(self, unit: KernelUnit) -> Iterator[int]:
        """Yield the kinds of calls that the unit serves, whatever the dtype of absent tensors."""
        mask = sum(1 << at for at, name in enumerate(self.op.may_be_none) if name in unit.absent)
        given_dtypes = {name: dtype for name, dtype in unit.dtypes if name not in unit.absent}
        for index, dtypes in enumerate(self.op.dtype_sets()):
            if given_dtypes.items() <= dtypes.items():
                yield (index << len(self.op.may_be_none)) + mask


@dataclass(frozen=True)
class ResolvedOp:
    """An op with all its launches."""

    spec: OpSpec
    launches: tuple[ResolvedLaunch, ...]

    @cached_property
    def on_demand(self) -> frozenset[str]:
        """Results and temporaries that are allocated when a step first uses them.

        ATen calls produce them, or they are temporaries that only conditional steps use.
        """
        op, always = self.spec, set[str]()
        for launch in self.launches:
            if launch.launch.when is None:
                always |= tensors_used(launch.launch, launch.bound)
        for call in op.aten:
            always |= call.tensors() if call.when is None else set()
        roots = {op.viewed(name) for name in always}
        return op.produced | {name for name in op.temporaries if name not in roots}


@dataclass(frozen=True)
class ResolvedKernel:
    """One kernel of a plan, completed from its sources."""

    kernel: AotKernel
    ops: tuple[ResolvedOp, ...]
    notes: tuple[str, ...]
    """Sentences about parts of the sources that were not followed."""

    @property
    def specs(self) -> tuple[OpSpec, ...]:
        """The ops without their launches."""
        return tuple(op.spec for op in self.ops)

    def launch_of(self, unit: KernelUnit) -> ResolvedLaunch:
        """The launch that a unit is compiled for."""
        return next(op for op in self.ops if op.spec.name == unit.op).launches[unit.launch]

    def compiled(self, images: Sequence[UnitImage]) -> ResolvedKernel:
        """Return the kernel with the images of its launches."""
        of_launch: dict[tuple[str, int], list[UnitImage]] = {}
        for image in images:
            of_launch.setdefault((image.unit.op, image.unit.launch), []).append(image)
        ops = (
            ResolvedOp(
                op.spec,
                tuple(
                    replace(launch, compiled=tuple(of_launch.get((op.spec.name, index), ())))
                    for index, launch in enumerate(op.launches)
                ),
            )
            for op in self.ops
        )
        return replace(self, ops=tuple(ops))


def _choices(constant: Constant, value: Value) -> list[int]:
    if not constant.values:
        return [int(value)] if isinstance(value, int) else []
    # With their types, since True equals 1 and 1.0.
    pairs = zip(constant.choices, constant.values, strict=True)
    return [int(choice) for choice, known in pairs if (type(known), known) == (type(value), value)]


def count_call_kinds(op: OpSpec) -> int:
    """Number of kinds of calls: sets of dtypes times sets of tensors that are None."""
    return len(op.dtype_sets()) << len(op.may_be_none)


def is_compiled_for(candidate: Candidate, unit: KernelUnit) -> bool:
    """True when the unit was compiled for this candidate."""
    # A unit lists the candidate's constants first, then those of the launch.
    candidate_constants = unit.constants[: len(candidate.constants)]
    if _exact(candidate_constants, unit.options) != _exact(candidate.constants, candidate.options):
        return False
    if candidate.aligned and not unit.aligned:
        return False
    return not candidate.archs or unit.target.is_one_of(candidate.archs)


def _exact(constants: ConstantPairs, options: ConstantPairs) -> str:
    """Constants and options as text: True equals 1 in Python but compiles differently."""
    return json.dumps([constants, options])
