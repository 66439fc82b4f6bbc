"""Which candidates' images a kernel gets, and whether they are enough for every device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kbuild.languages.base import LANGUAGES, Language
from kbuild.languages.fitting import PRUNED, Kind, Outcome, kind_of
from kbuild.languages.joined import Section
from kbuild.languages.launcher.variants import is_of
from kbuild.languages.releases import devices
from kbuild.languages.shipped import closest, shipped
from kbuild.languages.spec import Bound, Candidate, Launch, OpSpec, read_section
from kbuild.languages.spec.values import Pairs
from kbuild.languages.tablefile import read_tables
from kbuild.languages.tables import Table
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit
from kbuild.plan import AotKernel

Make = Callable[[Sequence[tuple[Unit, Bound]]], Sequence[Outcome]]
"""Compiles units."""
_Place = tuple[str, int, Target]


@dataclass
class Choosing:
    """The candidates of one section.

    How much shared memory a candidate needs is known once it is compiled. Where a default one needs
    more than some device has that would run the code, the next one is compiled as well.
    """

    section: Section
    tables: Sequence[Table]
    _scarce: dict[_Place, set[int]] = field(default_factory=dict)
    """Candidates, by index, that some device has no memory for."""

    def made(self, make: Make) -> tuple[tuple[Outcome, ...], tuple[str, ...]]:
        """What became of all units, and a sentence for each device that is left without a default.

        Args:
            make: asked again with more units until there are enough.
        """
        while True:
            outcomes = tuple(make(tuple(self._wanted())))
            if self.section.kernel.keep_all or not self._learn(outcomes):
                return outcomes, tuple(self._warnings(outcomes))

    @cached_property
    def _targets(self) -> tuple[Target, ...]:
        return tuple(map(Target.parse, self.section.kernel.targets))

    @cached_property
    def _least(self) -> dict[Target, tuple[int, str]]:
        """The device with the least shared memory among those that run a target's code."""
        found: dict[Target, tuple[int, str]] = {}
        for device, bytes_ in devices().items():
            target = closest(device, self._targets)
            if target is not None:
                found[target] = min(found.get(target, (bytes_, device)), (bytes_, device))
        return found

    def _wanted(self) -> Iterator[tuple[Unit, Bound]]:
        """Every unit once, in the order of the section, with the function that it compiles."""
        language, seen = LANGUAGES.get(self.section.kernel.language), set[str]()
        for op in self.section.ops:
            for target in self._targets:
                launches = (self._shipped(op, i, target) for i in range(len(op.launches)))
                for unit in language.expand(replace(op, launches=tuple(launches)), (target,)):
                    text = repr(unit)
                    if text not in seen:
                        seen.add(text)
                        yield unit, self.section.launches[op.name, unit.launch].bound

    def _shipped(self, op: OpSpec, index: int, target: Target) -> Launch:
        kernel, launch = self.section.kernel, self.section.launches[op.name, index].launch
        scarce = self._scarce.get((op.name, index, target), set())
        candidates = shipped(
            launch,
            self.tables,
            kernel.name,
            op.name,
            index,
            target,
            among=self._targets,
            keep_all=kernel.keep_all,
            is_scarce=lambda one: any(one is launch.candidates[at] for at in scarce),
        )
        return replace(launch, candidates=candidates, autotune=False)

    def _learn(self, outcomes: Sequence[Outcome]) -> bool:
        """Remember candidates that need too much; True when there are new ones."""
        is_new = False
        for one in outcomes:
            if self._fits(one):
                continue
            unit = one.unit
            known = self._scarce.setdefault((unit.op, unit.launch, unit.target), set())
            found = {at for at, candidate in self._candidates(unit) if is_of(candidate, unit)}
            is_new = is_new or not found <= known
            known |= found
        return is_new

    def _candidates(self, unit: Unit) -> Iterator[tuple[int, Candidate]]:
        yield from enumerate(self.section.launches[unit.op, unit.launch].launch.candidates)

    def _fits(self, one: Outcome) -> bool:
        if one.compiled is None:
            return False
        least = self._least.get(one.unit.target)
        return least is None or one.compiled.image.shared <= least[0]

    def _warnings(self, outcomes: Sequence[Outcome]) -> Iterator[str]:
        """For each kind of call that no default image on the smallest device is for."""
        groups: dict[tuple[_Place, Kind], dict[int, list[Outcome]]] = {}
        for one in outcomes:
            unit = one.unit
            if one.reason == PRUNED:
                continue
            place = ((unit.op, unit.launch, unit.target), kind_of(unit))
            for at, candidate in self._candidates(unit):
                if is_of(candidate, unit) and not candidate.is_conditional:
                    groups.setdefault(place, {}).setdefault(at, []).append(one)
        for ((op, launch, target), (dtypes, _)), found in groups.items():
            if any(all(map(self._fits, own)) for own in found.values()):
                continue
            needs = [max(map(_shared, own)) for own in found.values()]
            if any(needs) and target in self._least:
                yield self._warning(op, launch, target, dtypes, min(filter(None, needs)))

    def _warning(self, op: str, launch: int, target: Target, dtypes: Pairs, needed: int) -> str:
        least, device = self._least[target]
        called = self.section.launches[op, launch].bound.function
        names = "/".join(dict.fromkeys(str(dtype) for _, dtype in dtypes))
        return (
            f"kernel.{self.section.kernel.name}: `{called}` with {names} has no default candidate "
            f"for {device}, which runs the code for {target}: it has {least} bytes of shared "
            f"memory, the smallest candidate needs {needed}; add a smaller one"
        )


def planned(kernel: AotKernel, root: Path) -> dict[str, int | None]:
    """Op -> how many images are compiled for it; None where only its sources say that.

    Further candidates, for devices that lack the memory for the first ones, are not counted: how
    much these need is known once they are compiled.

    Args:
        kernel: of a plan.
        root: the project, with its tuned tables.

    Raises:
        ConfigError: a table cannot be read.
    """
    language, targets = LANGUAGES.get(kernel.language), tuple(map(Target.parse, kernel.targets))
    tables, found = read_tables(root, kernel.tables), dict[str, int | None]()
    says_all = type(language).complete is Language.complete
    for op in read_section(kernel.name, kernel.section).ops:
        if not says_all or any(launch.autotune for launch in op.launches):
            found[op.name] = None
            continue
        units = set[str]()
        for target in targets:
            launches = tuple(
                replace(
                    launch,
                    candidates=shipped(
                        launch, tables, kernel.name, op.name, index, target, among=targets,
                        keep_all=kernel.keep_all,
                    ),
                )
                for index, launch in enumerate(op.launches)
            )  # fmt: skip
            expanded = language.expand(replace(op, launches=launches), (target,))
            units |= set(map(repr, expanded))
        found[op.name] = len(units)
    return found


def _shared(one: Outcome) -> int:
    return one.compiled.image.shared if one.compiled is not None else 0
