"""`kbuild check` of sources that no compiler here compiles: includes, and types of C++ for XPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock

from kbuild.backends import BACKENDS
from kbuild.backends.base import TypeCheck
from kbuild.build.unit.cache import DEFAULT_MEMORY
from kbuild.errors import ToolchainError
from kbuild.identity import Identity
from kbuild.plan import VariantPlan
from kbuild.planning.variant import Planner
from kbuild.project import Project
from kbuild.runtime.budget import Budget, Run, make_budget, open_run
from kbuild.runtime.executor import VariantTask, run_tasks
from kbuild.runtime.unit_settings import read_launcher_settings
from kbuild.selection import Selection, VariantChoice, project_variants, select_variants
from kbuild.services import Services
from kbuild.sourcetree import SourceTree
from kbuild.static.headers import HeaderDir
from kbuild.static.includes import SourceVerdict, check_includes
from kbuild.static.types import (
    LANGUAGE,
    TypeCheckEnvironment,
    UnitTypeCheck,
    UnitTypeResult,
    check_unit,
    types_verdict,
    units_to_check,
)
from kbuild.store import open_store
from kbuild.toolchains.dependency_headers.search import HeaderResolver
from kbuild.toolchains.facts import FactCache, compiler_facts
from kbuild.toolchains.host import HostToolchains, clean_environment, find_cxx
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import ToolchainLock as Pins
from kbuild.toolchains.wheels.lock import packaged_lock
from kbuild.toolchains.wheels.settings import IndexSettings

# The op namespace proves nothing: with one name for all states of the source, only what changed is
# checked again.
_FIXED_IDENTITY = Identity(unique_id="check", commit=None, dirty=False)


def check_sources(
    project: Project, options: StaticCheckOptions, services: Services
) -> tuple[SourceVerdict, ...]:
    """The verdict on each variant that was asked for and can be judged without its compiler.

    Without named variants, that is one of the newest Torch for each such backend.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    tree = SourceTree(project.root)
    chosen = [
        choice
        for choice in select_variants(project, options.selection)
        if _can_check_statically(choice)
    ]
    if not options.selection.is_explicit:
        chosen = _newest(chosen)
    plans = Planner(project, tree, services.runner, _FIXED_IDENTITY).plans(chosen)
    desk = TypecheckContext(project, options, services)
    typed = [plan for plan in plans if BACKENDS.get(plan.backend).type_check]
    verdicts = check_types(desk, typed) if typed else {}
    verdicts |= {
        plan.variant: _include_verdict(desk, plan, tree) for plan in plans if plan not in typed
    }
    return tuple(verdicts[plan.variant] for plan in plans)


def backends_needing_a_build(project: Project) -> tuple[str, ...]:
    """The project's compiled backends about which only a build can say anything."""
    judged = {
        choice.variant.backend
        for choice in project_variants(project)
        if _can_check_statically(choice)
    }
    return tuple(
        name
        for name in project.file.general.backends
        if name not in judged and project.is_compiled(name)
    )


def _can_check_statically(choice: VariantChoice) -> bool:
    backend = BACKENDS.get(choice.variant.backend)
    is_compiled = choice.variant.system is not None
    return is_compiled and bool(backend.type_check or backend.include_check)


def _newest(choices: Iterable[VariantChoice]) -> list[VariantChoice]:
    """One variant of each backend: the last of its newest Torch, in matrix order."""
    best: dict[str, VariantChoice] = {}
    for choice in choices:
        before = best.get(choice.variant.backend)
        if before is None or _torch(choice) >= _torch(before):
            best[choice.variant.backend] = choice
    return list(best.values())


def _torch(choice: VariantChoice) -> tuple[int, ...]:
    return choice.torch.parts if choice.torch else ()


def _include_verdict(desk: TypecheckContext, plan: VariantPlan, tree: SourceTree) -> SourceVerdict:
    asked = BACKENDS.get(plan.backend).include_check
    assert asked is not None  # noqa: S101 - see `_can_check_statically`
    files, findings = check_includes(plan, tree, asked)
    proved = f"includes of {len(files)} file{'s' if len(files) != 1 else ''} resolved"
    return SourceVerdict(plan.variant, proved, desk.unproved(plan), findings)


UnitAnswer = tuple[UnitTypeCheck, UnitTypeResult]
_GENERATED = "generated"
"""Folder of generated headers, in the run's."""


@dataclass(frozen=True)
class StaticCheckOptions:
    """The options of `kbuild check`."""

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
class TypecheckContext:
    """What every step of a check needs."""

    project: Project
    options: StaticCheckOptions
    services: Services

    @cached_property
    def host(self) -> HostToolchains:
        """This machine's compilers and interpreter."""
        return HostToolchains(
            self.services.runner, FactCache(self.services.cache), self.options.python
        )

    @cached_property
    def cxx(self) -> Path:
        """The plain C++ compiler."""
        return find_cxx()

    @cached_property
    def cxx_version(self) -> str:
        """Its name and version."""
        return str(
            compiler_facts(self.cxx, FactCache(self.services.cache), self.services.runner)[
                "version"
            ]
        )

    def unproved(self, plan: VariantPlan) -> str:
        """What is left open, and why."""
        reason = self.host.refuses(replace(plan.requires, libraries=()))
        return f"not compiled: {reason}" if reason else "not compiled: `kbuild build` does that"

    def shelf(self, scratch: Path) -> HeaderDir:
        """Where headers come from."""
        services, options = self.services, self.options
        installer = WheelInstaller(
            services.runner,
            open_store(services.cache),
            options.pins,
            options.settings,
            services.ui.downloads,
        )
        sources = HeaderResolver(options.sources, services.cache, services.runner)
        return HeaderDir(self.project.root, scratch, self.host.facts, installer, sources)

    def surroundings(self, run: Run) -> TypeCheckEnvironment:
        """Where and how units are checked."""
        root = self.project.root
        settings = read_launcher_settings(run.environment("", root, (("c++", self.cxx_version),)))
        assert settings is not None  # noqa: S101 - a run's environment has them
        environ = clean_environment({**os.environ, **run.temporary})
        folder = run.folder
        runner = self.services.runner
        return TypeCheckEnvironment(root, folder, folder / _GENERATED, settings, environ, runner)


def check_types(desk: TypecheckContext, plans: Sequence[VariantPlan]) -> dict[str, SourceVerdict]:
    """Variant -> verdict; one whose headers cannot be had does not keep the others from theirs.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    verdicts: dict[str, SourceVerdict] = {}
    work: list[tuple[VariantPlan, list[UnitTypeCheck]]] = []
    compiler = desk.cxx
    with open_run(_within_memory(make_budget(desk.options.jobs)), desk.services.cache) as run:
        shelf = desk.shelf(run.folder / _GENERATED)
        for plan in plans:
            asked = _type_check_of(plan)
            try:
                units = units_to_check(plan, asked, shelf.folders(plan, asked), compiler)
                work.append((plan, list(units)))
            except ToolchainError as error:
                verdicts[plan.variant] = SourceVerdict(plan.variant, "", error.message, error=error)
        answers = dict(_answers(desk, [unit for _, listed in work for unit in listed], run))
    for plan, listed in work:
        unit_answers = [(unit, answers[unit]) for unit in listed]
        # Compiler and headers, for people.
        wants, parts = plan.requires, [desk.cxx_version]
        if wants.torch:
            pinned = desk.options.pins.torch_for(wants.torch, exact=wants.torch_exact)
            parts.append(f"Torch {pinned.version if pinned else wants.torch}")
        parts += [f"{name} {wants.toolkit}" for name in _type_check_of(plan).headers]
        version_text = ", ".join(parts)
        verdicts[plan.variant] = types_verdict(
            plan, unit_answers, version_text, desk.project.root, desk.unproved(plan)
        )
    return verdicts


def _within_memory(budget: Budget) -> Budget:
    """As many compilers as memory allows when each sees all of Torch."""
    return replace(budget, jobs=min(budget.jobs, max(1, budget.memory // DEFAULT_MEMORY[LANGUAGE])))


def _type_check_of(plan: VariantPlan) -> TypeCheck:
    asked = BACKENDS.get(plan.backend).type_check
    assert asked is not None  # noqa: S101 - the caller looked
    return asked


def _answers(
    desk: TypecheckContext, asked: Sequence[UnitTypeCheck], run: Run
) -> Iterator[UnitAnswer]:
    """The compiler's answers, as many at once as the budget allows."""
    around, lock, done = desk.surroundings(run), Lock(), [0]
    with desk.services.ui.progress("check", len(asked)) as progress:

        def work(unit: UnitTypeCheck) -> UnitAnswer:
            answer = check_unit(unit.argv, unit.source, around)
            with lock:
                done[0] += 1
                progress.update(done[0], len(asked), unit.source)
            return unit, answer

        tasks = [VariantTask(unit.source, partial(work, unit)) for unit in asked]
        results = run_tasks(tasks, run, desk.services.runner.stop)
    yield from (result for result in results if result)
