"""Selects the candidates that are compiled: those that tuned tables name, and defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from kbuild.dsl.devices import cuda_devices
from kbuild.dsl.image_cache import PRUNED, CallKind, UnitOutcome, call_kind
from kbuild.dsl.launcher.resolved_kernel import ResolvedKernel, is_compiled_for
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.expand import may_hold
from kbuild.ops.expression import Expression
from kbuild.ops.language import LANGUAGES, Language
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate, Launch, Pairs
from kbuild.ops.tuned_tables import TunedTable, read_tables
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.plan.plan import AotKernel

_LATER_DEVICE = 199
"""Compute capability that stands for GPUs newer than `devices.toml`; they run PTX only."""


def shipped_candidates(  # noqa: PLR0917
    launch: Launch,
    tables: Sequence[TunedTable],
    kernel: str,
    op: str,
    index: int,
    target: ImageTarget,
    *,
    among: Sequence[ImageTarget] = (),
    keep_all: bool = False,
    without_memory: Sequence[Candidate] = (),
) -> tuple[Candidate, ...]:
    """Return the candidates that get an image for `target`, in the section's order.

    They are the winners of tables whose devices run images of `target`, and the default ones: up
    to and including the first that every call may use, and of several for the same calls the first.
    A candidate that some device lacks the memory for (`without_memory`) is none of these firsts.
    Devices run the closest target of `among`, which lists all that the variant is compiled for.
    With `keep_all`, for tuning, all candidates for the arch are returned.

    Candidates that are not default ones get aligned images only: a call that has to run a plain
    image runs that of a default candidate.
    """
    fitting = [c for c in launch.candidates if not c.archs or target.is_one_of(c.archs)]
    targets = among or (target,)
    # PTX is compiled only for the devices that have no closer machine code.
    if target.kind == "ptx":
        numbers = [*_devices(target, targets)]
        fitting = [c for c in fitting if _may_run(launch, c, numbers)]
    near = [table for table in tables if closest_target(table.arch, targets) == target]
    rows = [row for table in near for row in table.of(kernel, op, index)]
    # By identity, since a candidate with the value 1 equals one with True.
    default = {id(candidate) for candidate in _default_candidates(fitting, without_memory)}
    return tuple(
        candidate if id(candidate) in default else replace(candidate, aligned=True)
        for candidate in fitting
        if id(candidate) in default or keep_all or any(row.names(candidate) for row in rows)
    )


def _devices(target: ImageTarget, targets: Sequence[ImageTarget]) -> Iterator[int]:
    """Yield the capabilities of devices that run a target's code, and of unknown later ones."""
    for device in cuda_devices():
        if closest_target(device, targets) == target:
            yield int(device.removeprefix("sm_"))
    yield _LATER_DEVICE


def _may_run(launch: Launch, candidate: Candidate, devices: Sequence[int]) -> bool:
    """True if a candidate's conditions can hold on at least one of the devices."""
    both = (launch.when, candidate.when)
    conditions = [part for condition in both if condition for part in condition.conjuncts()]
    known = ({"capability()": number} for number in devices)
    return any(all(may_hold(condition, device) for condition in conditions) for device in known)


def closest_target(arch: str, targets: Sequence[ImageTarget]) -> ImageTarget | None:
    """Return the target that a device of an arch such as `sm_89` runs; None when none fits.

    The closest is code for its exact arch, then for an older arch of its family, then PTX.
    """
    usable = [target for target in targets if runs_on(target, arch)]
    return max(usable, key=_closeness, default=None)


def _default_candidates(
    candidates: Sequence[Candidate], without_memory: Sequence[Candidate]
) -> Iterator[Candidate]:
    seen: list[tuple[Expression | None, bool]] = []
    for candidate in candidates:
        calls = (candidate.when, candidate.aligned)
        if calls not in seen:
            yield candidate
        if any(candidate is lacking for lacking in without_memory):
            continue
        if not candidate.is_conditional:
            return
        seen.append(calls)


def runs_on(target: ImageTarget, arch: str) -> bool:
    """True when a device of that arch runs code for `target`."""
    capability = target.capability
    if capability is None or not arch.startswith("sm_"):
        return target.arch == arch
    device = ImageTarget(arch, "cubin").capability
    if device is None:
        return False
    # `sm_90a` runs on 9.0 only, neither on other minor nor on later major versions.
    if capability.feature == "a":
        return capability.base == device.base
    # The driver compiles PTX for its arch and every later one, but PTX with a feature only for the
    # devices that run such machine code.
    if target.kind == "ptx" and not capability.feature:
        return capability.base <= device.base
    return capability.major == device.major and capability.minor <= device.minor


def _closeness(target: ImageTarget) -> tuple[bool, tuple[int, int], str]:
    capability = target.capability
    # `a` is closer than `f`, and both are closer than code without either.
    feature = {"": "0", "f": "1", "a": "2"}[capability.feature if capability else ""]
    return target.kind != "ptx", capability.base if capability else (0, 0), feature


CompileUnits = Callable[[Sequence[tuple[KernelUnit, BoundLaunch]]], Sequence[UnitOutcome]]
_LaunchTarget = tuple[str, int, ImageTarget]


@dataclass
class CandidateSelector:
    """Selects the candidates of one section that are compiled.

    How much shared memory a candidate needs is known once it is compiled. Where a default one needs
    more than some device has that would run the code, the next one is compiled as well.
    """

    section: ResolvedKernel
    tables: Sequence[TunedTable]
    _scarce: dict[_LaunchTarget, set[int]] = field(default_factory=dict)
    """(op, launch, target) -> indices of candidates that need more memory than some device has."""

    def compile(self, make: CompileUnits) -> tuple[tuple[UnitOutcome, ...], tuple[str, ...]]:
        """Return the outcome of all units, and warnings for devices without a default.

        `make` is called again with more units until each device has a default candidate.
        """
        # This ends, since `_learn` is true only if it has learnt of another candidate.
        while True:
            outcomes = tuple(make(tuple(self.wanted())))
            if self.section.kernel.keep_all or not self._learn(outcomes):
                return outcomes, tuple(self._warnings(outcomes))

    @cached_property
    def _targets(self) -> tuple[ImageTarget, ...]:
        return tuple(map(ImageTarget.parse, self.section.kernel.targets))

    @cached_property
    def _least(self) -> dict[ImageTarget, tuple[int, str]]:
        """The device with the least shared memory among those that run a target's code."""
        memory_by_target: dict[ImageTarget, tuple[int, str]] = {}
        for device, bytes_ in cuda_devices().items():
            target, own = closest_target(device, self._targets), (bytes_, device)
            if target is not None:
                memory_by_target[target] = min(memory_by_target.get(target, own), own)
        return memory_by_target

    def wanted(self) -> Iterator[tuple[KernelUnit, BoundLaunch]]:
        """Yield every unit once, in the section's order, with the launch that it compiles."""
        for op in self.section.ops:
            launches = [launch.launch for launch in op.launches]
            units = _shipped_units(
                self.section.kernel, op.spec, launches, self.tables, self._targets, self._scarce
            )
            yield from ((unit, op.launches[unit.launch].bound) for unit in units)

    def _learn(self, outcomes: Sequence[UnitOutcome]) -> bool:
        """Record candidates that need more memory than a device has; True if there are new."""
        is_new = False
        for outcome in outcomes:
            if self._fits(outcome):
                continue
            unit = outcome.unit
            known = self._scarce.setdefault((unit.op, unit.launch, unit.target), set())
            indices = {at for at, _ in self._candidates(unit)}
            is_new = is_new or not indices <= known
            known |= indices
        return is_new

    def _candidates(self, unit: KernelUnit) -> Iterator[tuple[int, Candidate]]:
        """Yield the candidates that the unit is compiled for, with their indices."""
        every = enumerate(self.section.launch_of(unit).launch.candidates)
        yield from ((at, candidate) for at, candidate in every if is_compiled_for(candidate, unit))

    def _fits(self, outcome: UnitOutcome) -> bool:
        if outcome.compiled is None:
            return False
        least = self._least.get(outcome.unit.target)
        return least is None or outcome.compiled.image.shared <= least[0]

    def _warnings(self, outcomes: Sequence[UnitOutcome]) -> Iterator[str]:
        """Yield a warning for each kind of call without a default image for the smallest device."""
        groups: dict[tuple[_LaunchTarget, CallKind], dict[int, list[UnitOutcome]]] = {}
        for outcome in outcomes:
            unit = outcome.unit
            if outcome.reason == PRUNED:
                continue
            place = ((unit.op, unit.launch, unit.target), call_kind(unit))
            for at, candidate in self._candidates(unit):
                if not candidate.is_conditional:
                    groups.setdefault(place, {}).setdefault(at, []).append(outcome)
        for ((_, _, target), (dtypes, _)), outcomes_by_candidate in groups.items():
            if any(all(map(self._fits, own)) for own in outcomes_by_candidate.values()):
                continue
            first = next(iter(outcomes_by_candidate.values()))[0]
            needs = [
                max(outcome.compiled.image.shared if outcome.compiled else 0 for outcome in own)
                for own in outcomes_by_candidate.values()
            ]
            if any(needs) and target in self._least:
                called = self.section.launch_of(first.unit).bound.function
                yield self._warning(called, target, dtypes, min(filter(None, needs)))

    def _warning(self, called: str, target: ImageTarget, dtypes: Pairs, needed: int) -> str:
        least, device = self._least[target]
        names = "/".join(dict.fromkeys(str(dtype) for _, dtype in dtypes))
        return (
            f"kernel.{self.section.kernel.name}: `{called}` with {names} has no default candidate "
            f"for {device}, which runs the code for {target}: it has {least} bytes of shared "
            f"memory, the smallest candidate needs {needed}; add a smaller one"
        )


def planned_image_texts(kernel: AotKernel, root: Path) -> dict[str, str]:
    """Return how many images `planned_units` returns for each op, and what multiplies them."""
    planned, texts = planned_units(kernel, root), {}
    for op in kernel.section.ops:
        units = planned[op.name]
        if units is None:
            texts[op.name] = "as many as its sources say"
            continue
        factors = describe_factors(op, units)
        texts[op.name] = f"{len(units)}: {factors}" if factors else str(len(units))
    return texts


def planned_units(kernel: AotKernel, root: Path) -> dict[str, tuple[KernelUnit, ...] | None]:
    """Return the units of each op by name; None where they depend on its sources.

    Further candidates, for devices that lack the memory for the first ones, are not counted: how
    much these need is known once they are compiled.

    Raises:
        ConfigError: a tuned table of the project cannot be read.
    """
    targets, tables = [*map(ImageTarget.parse, kernel.targets)], read_tables(root, kernel.tables)
    planned: dict[str, tuple[KernelUnit, ...] | None] = {}
    # A language that overrides `complete` takes candidates from the source, which is not imported
    # here.
    says_all = type(LANGUAGES.get(kernel.language)).complete is Language.complete
    for op in kernel.section.ops:
        is_known = says_all and not any(launch.autotune for launch in op.launches)
        units = _shipped_units(kernel, op, op.launches, tables, targets) if is_known else None
        planned[op.name] = units
    return planned


def _shipped_units(  # noqa: PLR0917
    kernel: AotKernel,
    op: OpSpec,
    launches: Sequence[Launch],
    tables: Sequence[TunedTable],
    targets: Sequence[ImageTarget],
    scarce: Mapping[_LaunchTarget, Collection[int]] = MappingProxyType({}),
) -> tuple[KernelUnit, ...]:
    """Return the units of an op that get an image, each once."""
    language = LANGUAGES.get(kernel.language)
    units: dict[str, KernelUnit] = {}
    for target in targets:
        shipped = []
        for index, launch in enumerate(launches):
            lacking = [launch.candidates[at] for at in scarce.get((op.name, index, target), ())]
            candidates = shipped_candidates(
                launch, tables, kernel.name, op.name, index, target,
                among=targets, keep_all=kernel.keep_all, without_memory=lacking,
            )  # fmt: skip
            shipped.append(replace(launch, candidates=candidates, autotune=False))
        for unit in language.expand(replace(op, launches=tuple(shipped)), (target,)):
            # As text, since units with True and 1 are equal but compile differently.
            units.setdefault(repr(unit), unit)
    return tuple(units.values())


_MANY_IMAGES = 500
"""Number of images of a variant above which a warning explains the long compilation."""


def image_count_warning(
    sections: Sequence[tuple[str, Sequence[OpSpec], Sequence[KernelUnit]]],
) -> str:
    """Return a warning about very many images and the reason; else empty.

    Args:
        sections: name, ops and units of each section.
    """
    total = sum(len(units) for _, _, units in sections)
    if total <= _MANY_IMAGES:
        return ""
    counts = Counter((name, unit.op) for name, _, units in sections for unit in units)
    (kernel, op), count = counts.most_common(1)[0]
    _, ops, units = next(section for section in sections if section[0] == kernel)
    spec = next(spec for spec in ops if spec.name == op)
    factors = describe_factors(spec, [unit for unit in units if unit.op == op])
    share = "all" if count == total else f"{count:,}"
    return (
        f"{total:,} images have to be compiled, {share} of them for `{op}` of kernel.{kernel}, "
        f"which has {factors}; shorten these lists to compile fewer"
    )


def describe_factors(op: OpSpec, units: Sequence[KernelUnit]) -> str:
    """Describe what multiplies the images of an op, and how many each further value adds.

    Such as `10 values of the constant BLOCK (6 images each), 3 combinations of dtypes (20 each)`.
    """
    rows = [dict(_image_factors(op.launches[unit.launch], unit)) for unit in units]
    texts: list[tuple[int, str]] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        others = {repr([value for key, value in row.items() if key != name]) for row in rows}
        values = Counter(repr(row[name]) for row in rows if name in row)
        # A factor that follows from the others, such as a candidate for some sizes, adds none.
        if len(values) > 1 and len(others) < len(rows):
            most = max(values.values())
            each = "each" if most == min(values.values()) else "or fewer each"
            texts.append((len(values), f"{len(values)} {name} ({most} images {each})"))
    return ", ".join(text for _, text in sorted(texts, reverse=True))


def _image_factors(launch: Launch, unit: KernelUnit) -> Iterator[tuple[str, object]]:
    """Yield the properties in which the images of an op differ, each with the unit's value."""
    launch_constants = {constant.name for constant in launch.constants}
    candidate = tuple(pair for pair in unit.constants if pair[0] not in launch_constants)
    yield "launches", unit.launch
    yield "candidates", (candidate, unit.options)
    yield "combinations of `dtypes`", unit.dtypes
    yield "combinations of optional tensors", unit.absent
    yield "archs", unit.target
    yield "assumptions about alignment", (unit.aligned, unit.divisible)
    values = dict(unit.constants)
    for constant in launch.constants:
        if constant.choices:
            yield f"values of the constant `{constant.name}`", values.get(constant.name)
