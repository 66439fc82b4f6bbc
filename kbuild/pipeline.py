"""The whole way: which variants, their plans, a toolchain for each, build, check, package.

Each function here only names stages; what a stage does is in its own module.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.state import read_state, record
from kbuild.build.workspace import Workspace
from kbuild.checks import Finding, Output
from kbuild.checks.base import run_checks
from kbuild.errors import BuildError, CheckError, IncompleteError, ToolchainError
from kbuild.matrix.selection import Choice, Selection, select, variants
from kbuild.outcome import Built
from kbuild.package import finish, place, recover
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import Host
from kbuild.ui import Ui

if TYPE_CHECKING:  # what only a build that has something to do needs
    from kbuild.build.budget import Run
    from kbuild.build.ninja import Tell


@dataclass(frozen=True)
class Doors:
    """Every way in which the pipeline touches the world."""

    runner: Runner
    ui: Ui
    cache: Path
    """kbuild's cache folder."""


@dataclass(frozen=True)
class BuildOptions:
    """What `kbuild build` was asked for."""

    selection: Selection = field(default_factory=Selection)
    output: Path | None = None
    """Folder that gets the variant directories; `build/` in the project when None."""
    python: Path | None = None
    jobs: int | None = None
    """Compiler processes of all variants together; as many as there are processors when None."""
    memory: int | None = None
    """MiB for all compilers together; what is free when None."""
    seconds: float | None = None
    """Time after which nothing is started."""


def plan(
    project: Project, selection: Selection, runner: Runner, tree: SourceTree | None = None
) -> tuple[VariantPlan, ...]:
    """The plans of the selected variants."""
    chosen = select(project, selection)
    return make_plans(project, chosen, tree or SourceTree(project.root), runner)


def with_host(
    plans: Sequence[VariantPlan], runner: Runner, cache: Path, python: Path | None
) -> tuple[VariantPlan, ...]:
    """The plans with this machine's toolchain, where it fits."""
    host = Host(runner, FactCache(cache), python)
    return tuple(
        made.with_toolchain(host.provision(made.requires).summary)
        if host.refuses(made.requires) is None
        else made
        for made in plans
    )


def refusals(
    project: Project, choices: Sequence[Choice], runner: Runner, cache: Path, python: Path | None
) -> dict[str, str | None]:
    """Per variant: why this machine cannot build it, or None."""
    host = Host(runner, FactCache(cache), python)
    plans = make_plans(project, choices, SourceTree(project.root), runner)
    return {made.variant: host.refuses(made.requires) for made in plans}


def build(project: Project, options: BuildOptions, doors: Doors) -> tuple[Built, ...]:
    """Build what was asked for and this machine can build; the rest is skipped with a reason.

    Raises:
        ToolchainError: nothing that was asked for can be built here.
    """
    host = Host(doors.runner, FactCache(doors.cache), options.python)
    plans = plan(project, options.selection, doors.runner)
    refusals = {made.variant: host.refuses(made.requires) for made in plans}
    buildable = [made for made in plans if refusals[made.variant] is None]
    if not buildable and not options.selection.is_explicit:
        buildable = _beyond_default(project, options.selection, host, doors)
    skipped = [Built(name, "skipped", reason) for name, reason in refusals.items() if reason]
    if not buildable:
        raise _nothing_to_build(project, skipped)
    results = {made.variant: _up_to_date(project, made, host, options) for made in buildable}
    waiting = [made for made in buildable if results[made.variant] is None]
    if waiting:
        results |= _build_together(project, waiting, host, options, doors)
    return (*(result for result in results.values() if result is not None), *skipped)


def _beyond_default(
    project: Project, selection: Selection, host: Host, doors: Doors
) -> list[VariantPlan]:
    """Variants outside a plain build that this machine's Torch happens to fit."""
    wanted = selection.backends or project.file.general.backends
    others: Sequence[Choice] = [
        choice for choice in variants(project) if choice.variant.backend in wanted
    ]
    made = make_plans(project, others, SourceTree(project.root), doors.runner)
    return [candidate for candidate in made if host.refuses(candidate.requires) is None]


def _nothing_to_build(project: Project, skipped: Sequence[Built]) -> ToolchainError:
    reasons = "".join(f"\n    {result.variant}: {result.reason}" for result in skipped)
    return ToolchainError(
        f"none of these variants of {project.name} can be built on this machine:{reasons}",
        hint="`kbuild doctor` shows what is there and what is missing",
    )


def _up_to_date(
    project: Project, made: VariantPlan, host: Host, options: BuildOptions
) -> Built | None:
    """The outcome for a variant that has nothing to do; starts and imports nothing."""
    began = time.monotonic()
    made = made.with_toolchain(host.provision(made.requires).summary)
    space = Workspace(project.root, made.variant)
    target = target_of(project, made, options)
    state = read_state(space.state)
    if state is None or not state.holds(made, project.root, target):
        return None
    return Built(made.variant, "up-to-date", path=target, seconds=time.monotonic() - began)


def target_of(project: Project, made: VariantPlan, options: BuildOptions) -> Path:
    """Where the variant directory goes."""
    return (options.output or project.root / "build") / made.variant


def _build_together(
    project: Project,
    plans: Sequence[VariantPlan],
    host: Host,
    options: BuildOptions,
    doors: Doors,
) -> dict[str, Built | None]:
    """Build several variants under one budget."""
    from kbuild.build.budget import budget_of, opened
    from kbuild.build.schedule import Task, Together, run_all

    budget = budget_of(options.jobs, options.memory, options.seconds)
    title = plans[0].variant if len(plans) == 1 else f"{len(plans)} variants"
    with opened(budget, doors.cache) as run:
        with doors.ui.progress(title, 0) as progress:
            together = Together(progress)
            work = partial(_attempt, project, host=host, options=options, doors=doors, run=run)
            tasks = [
                Task(made.variant, partial(work, made, tell=together.part(made.variant)))
                for made in plans
            ]
            outcomes = run_all(tasks, run, doors.runner.stop)
        results = [
            outcome or _not_started(made) for made, outcome in zip(plans, outcomes, strict=True)
        ]
        return _concluded(project, plans, results, run, doors)


def _not_started(made: VariantPlan) -> Built:
    error = IncompleteError("not started, the time budget was over")
    return Built(made.variant, "incomplete", error.message, error=error)


def _attempt(
    project: Project,
    made: VariantPlan,
    *,
    host: Host,
    options: BuildOptions,
    doors: Doors,
    run: Run,
    tell: Tell,
) -> Built:
    began = time.monotonic()
    try:
        result = build_variant(project, made, host, options, doors, run=run, tell=tell)
    except IncompleteError as error:
        result = Built(made.variant, "incomplete", error.message, error=error)
    except (BuildError, CheckError) as error:
        if run.stopped.is_set():
            raise
        doors.ui.error(error)
        result = Built(made.variant, "failed", error.message, error=error)
    return replace(result, seconds=time.monotonic() - began)


def build_variant(
    project: Project,
    made: VariantPlan,
    host: Host,
    options: BuildOptions,
    doors: Doors,
    *,
    run: Run,
    tell: Tell,
) -> Built:
    """One variant: up to date, or generated, compiled, checked and moved into place.

    Raises:
        BuildError: a process failed; the variant directory is as it was.
        CheckError: the result breaks a promise; the variant directory is as it was.
        IncompleteError: the run's time was over; the next run continues.
    """
    from kbuild.build.compile import Compilation

    toolchain = host.provision(made.requires)
    made = made.with_toolchain(toolchain.summary)
    space = Workspace(project.root, made.variant)
    target = target_of(project, made, options)
    with space.locked():
        recover(target)
        state = read_state(space.state)
        if state is not None and state.holds(made, project.root, target):
            return Built(made.variant, "up-to-date", path=target)
        staged = Compilation(made, toolchain, space, doors.runner, run, tell).perform()
        finish(made, staged.folder)
        findings = _check(made, staged.folder, toolchain.python)
        place(staged.folder, target)
        record(made, project.root, target, staged.inputs).write(space.state)
        return Built(made.variant, "built", "", target, units=staged.units, findings=findings)


def _concluded(
    project: Project,
    plans: Sequence[VariantPlan],
    results: Sequence[Built],
    run: Run,
    doors: Doors,
) -> dict[str, Built | None]:
    """Say what the launchers could not, keep the report, and keep the cache within its bounds."""
    from kbuild.build.conclude import conclude
    from kbuild.build.report import VariantOutcome

    outcomes = [
        VariantOutcome(made.variant, result.status, result.seconds, made.archs, result.path)
        for made, result in zip(plans, results, strict=True)
    ]
    counts = conclude(project.name, Workspace.report_of(project.root), outcomes, run, doors.ui)
    return {
        result.variant: replace(result, objects=made, from_cache=hits)
        for result, (made, hits) in ((result, counts[result.variant]) for result in results)
    }


def _check(made: VariantPlan, folder: Path, python: Path) -> tuple[Finding, ...]:
    findings = run_checks(Output(folder, made.parsed_variant, python))
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        listed = "".join(f"\n    {finding}" for finding in errors)
        raise CheckError(
            f"{made.variant} was built but breaks its promises:{listed}",
            [finding.to_json() for finding in findings],
        )
    return findings
