"""The type checks of several variants under one budget."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock

from kbuild.backends import BACKENDS
from kbuild.backends.static import TypeCheck
from kbuild.build.budget import Budget, Run, budget_of, opened
from kbuild.build.schedule import Task, run_all
from kbuild.build.unit.settings import settings_of
from kbuild.build.unit.weights import DEFAULTS
from kbuild.errors import ToolchainError
from kbuild.matrix.selection import Selection
from kbuild.pipeline.options import Doors
from kbuild.plan import VariantPlan
from kbuild.project import Project
from kbuild.static.command import LANGUAGE
from kbuild.static.headers import Shelf
from kbuild.static.types import UnitCheck, judge, units
from kbuild.static.unit import Answer, Surroundings, ask
from kbuild.static.verdict import Verdict
from kbuild.store import store_of
from kbuild.toolchains.facts import FactCache, compiler
from kbuild.toolchains.host import Host, clean_environment, find_cxx
from kbuild.toolchains.sources import HeaderSources
from kbuild.toolchains.wheels.installer import Installer
from kbuild.toolchains.wheels.lock import Lock as Pins
from kbuild.toolchains.wheels.lock import packaged_lock
from kbuild.toolchains.wheels.settings import IndexSettings

Given = tuple[UnitCheck, Answer]
_GENERATED = "generated"
"""Folder of generated headers, in the run's."""


@dataclass(frozen=True)
class CheckOptions:
    """What `kbuild check` was asked for."""

    selection: Selection = field(default_factory=Selection)
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Folders with the headers of dependencies, by dependency."""
    python: Path | None = None
    """Interpreter whose `Python.h` is used; found when None."""
    jobs: int | None = None
    """Compilers at once; as many as there are processors, and room for, when None."""
    pins: Pins = field(default_factory=packaged_lock)
    settings: IndexSettings | None = None
    """pip's settings when None."""


@dataclass(frozen=True)
class Desk:
    """What every step of a check needs."""

    project: Project
    options: CheckOptions
    doors: Doors

    @cached_property
    def host(self) -> Host:
        """This machine's compilers and interpreter."""
        return Host(self.doors.runner, FactCache(self.doors.cache), self.options.python)

    @cached_property
    def cxx(self) -> Path:
        """The plain C++ compiler."""
        return find_cxx()

    @cached_property
    def cxx_version(self) -> str:
        """Its name and version."""
        return str(compiler(self.cxx, FactCache(self.doors.cache), self.doors.runner)["version"])

    def unproved(self, made: VariantPlan) -> str:
        """What is left open, and why."""
        reason = self.host.refuses(replace(made.requires, libraries=()))
        return f"not compiled: {reason}" if reason else "not compiled: `kbuild build` does that"

    def shelf(self, scratch: Path) -> Shelf:
        """Where headers come from."""
        doors, options = self.doors, self.options
        installer = Installer(
            doors.runner, store_of(doors.cache), options.pins, options.settings, doors.ui.say
        )
        sources = HeaderSources(options.sources, doors.cache, doors.runner)
        return Shelf(self.project.root, scratch, self.host.facts, installer, sources)

    def surroundings(self, run: Run) -> Surroundings:
        """Where and how units are checked."""
        root = self.project.root
        settings = settings_of(run.environment("", root, (("c++", self.cxx_version),)))
        assert settings is not None  # noqa: S101 - a run's environment has them
        environ = clean_environment({**os.environ, **run.temporary})
        folder = run.folder
        runner = self.doors.runner
        return Surroundings(root, folder, folder / _GENERATED, settings, environ, runner)


def check_types(desk: Desk, plans: Sequence[VariantPlan]) -> dict[str, Verdict]:
    """Variant -> verdict; one whose headers cannot be had does not keep the others from theirs.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    verdicts: dict[str, Verdict] = {}
    work: list[tuple[VariantPlan, list[UnitCheck]]] = []
    compiler = desk.cxx
    with opened(_within_memory(budget_of(desk.options.jobs)), desk.doors.cache) as run:
        shelf = desk.shelf(run.folder / _GENERATED)
        for made in plans:
            asked = _asked(made)
            try:
                found = units(made, asked, shelf.folders(made, asked), compiler)
                work.append((made, list(found)))
            except ToolchainError as error:
                verdicts[made.variant] = Verdict(made.variant, "", error.message, error=error)
        answers = dict(_answers(desk, [unit for _, listed in work for unit in listed], run))
    for made, listed in work:
        given = [(unit, answers[unit]) for unit in listed]
        verdicts[made.variant] = judge(
            made, given, _versions(desk, made), desk.project.root, desk.unproved(made)
        )
    return verdicts


def _within_memory(budget: Budget) -> Budget:
    """As many compilers as memory allows when each sees all of Torch."""
    return replace(budget, jobs=min(budget.jobs, max(1, budget.memory // DEFAULTS[LANGUAGE])))


def _asked(made: VariantPlan) -> TypeCheck:
    asked = BACKENDS.get(made.backend).type_check
    assert asked is not None  # noqa: S101 - the caller looked
    return asked


def _answers(desk: Desk, asked: Sequence[UnitCheck], run: Run) -> Iterator[Given]:
    """The compiler's answers, as many at once as the budget allows."""
    around, lock, done = desk.surroundings(run), Lock(), [0]
    with desk.doors.ui.progress("check", len(asked)) as progress:

        def work(unit: UnitCheck) -> Given:
            given = ask(unit.argv, unit.source, around)
            with lock:
                done[0] += 1
                progress.update(done[0], len(asked), unit.source)
            return unit, given

        tasks = [Task(unit.source, partial(work, unit)) for unit in asked]
        results = run_all(tasks, run, desk.doors.runner.stop)
    yield from (result for result in results if result)


def _versions(desk: Desk, made: VariantPlan) -> str:
    """Compiler and headers, for people."""
    wants, parts = made.requires, [desk.cxx_version]
    if wants.torch:
        pinned = desk.options.pins.torch_for(wants.torch, exact=wants.torch_exact)
        parts.append(f"Torch {pinned.version if pinned else wants.torch}")
    parts += [f"{name} {wants.toolkit}" for name in _asked(made).headers]
    return ", ".join(parts)
