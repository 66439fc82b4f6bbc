"""All variants that were asked for, under one budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.workspace import Workspace
from kbuild.config.place import display
from kbuild.errors import ConfigError, IncompleteError, Problem, ToolchainError
from kbuild.matrix.selection import variants
from kbuild.package import tidy
from kbuild.pipeline.options import BuildOptions, Doors
from kbuild.pipeline.order import longest_first
from kbuild.pipeline.outcome import Built
from kbuild.pipeline.plans import fitted, keeping_all, plan, refuse_names
from kbuild.pipeline.tools import tools_of
from kbuild.pipeline.torch_wheels import given_wheels, refuse_unused
from kbuild.pipeline.variant import Site, attempt, fetch, refused, up_to_date
from kbuild.pipeline.workshop import workshop_for
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.scratch import remove_abandoned
from kbuild.sourcetree import SourceTree
from kbuild.store import store_of

if TYPE_CHECKING:  # what only a build that has something to do needs
    from kbuild.build.budget import Run
    from kbuild.languages.workshop import Workshop


def build(project: Project, options: BuildOptions, doors: Doors) -> tuple[Built, ...]:
    """Build what was asked for and this machine can build; the rest is skipped with a reason.

    Raises:
        ConfigError: a file is too large to be shipped.
        ToolchainError: nothing that was asked for can be built here, or a wheel cannot be used.
        UsageError: a wheel fits no variant that was asked for.
    """
    with store_of(doors.cache).in_use():
        return _build(project, options, doors)


def _build(project: Project, options: BuildOptions, doors: Doors) -> tuple[Built, ...]:
    remove_abandoned()
    wheels = given_wheels(options.torch_wheels, doors.cache, doors.runner)
    tools = tools_of(
        options.toolchain,
        doors.runner,
        doors.cache,
        options.python,
        options.sources,
        torch_wheels=wheels,
        say=doors.ui.say,
    )
    site = Site(project, tools, options, doors)
    identity, archs, tree = site.identity, options.archs, SourceTree(project.root)
    plans = plan(
        project, options.selection, doors.runner, identity=identity, archs=archs, tree=tree
    )
    refuse_unused(wheels, plans)
    refuse_names(project.root, plans)
    refusals = {made.variant: tools.refuses(made.requires) for made in plans}
    buildable = [made for made in plans if refusals[made.variant] is None]
    if not buildable and not options.selection.is_explicit:
        buildable = _beyond_default(site, tree)
    skipped = [Built(name, "skipped", reason) for name, reason in refusals.items() if reason]
    if not buildable:
        raise _nothing_to_build(project, skipped)
    fitting = _fitted(site, buildable, tree)
    _refuse_large(project.root, fitting, options.max_file_size)
    return (*_build_all(site, fitting), *skipped)


def _refuse_large(root: Path, plans: Sequence[VariantPlan], limit: int) -> None:
    """Refuse files that nobody can have meant to ship, before anything is compiled.

    Raises:
        ConfigError: with every file that is larger than the limit.
    """
    sizes = {
        path: (root / path).stat().st_size
        for path in sorted({file.source for made in plans for file in made.files})
    }
    large = {path: size for path, size in sizes.items() if size > limit}
    if not large:
        return
    from kbuild.checks.size import size_text

    problems = [
        Problem(
            display(root, path),
            0,
            "",
            f"it has {size_text(size)}, and the limit for a file is {size_text(limit)}",
            "keep it out of the package, or raise `--max-file-size`",
        )
        for path, size in large.items()
    ]
    raise ConfigError(problems)


def _fitted(site: Site, plans: Sequence[VariantPlan], tree: SourceTree) -> tuple[VariantPlan, ...]:
    options = site.options
    found = fitted(
        site.project,
        plans,
        site.tools,
        site.doors.runner,
        identity=site.identity,
        archs=options.archs,
        tree=tree,
    )
    return tuple(map(keeping_all, found)) if options.keep_all else found


def _beyond_default(site: Site, tree: SourceTree) -> list[VariantPlan]:
    """Variants outside a plain build that this machine's Torch happens to fit."""
    project, options = site.project, site.options
    wanted = options.selection.backends or project.file.general.backends
    others = [choice for choice in variants(project) if choice.variant.backend in wanted]
    made = make_plans(
        project,
        others,
        tree,
        site.doors.runner,
        identity=site.identity,
        archs=options.archs,
    )
    return [candidate for candidate in made if site.tools.refuses(candidate.requires) is None]


def _nothing_to_build(project: Project, skipped: Sequence[Built]) -> ToolchainError:
    reasons = "".join(f"\n    {result.variant}: {result.reason}" for result in skipped)
    return ToolchainError(
        f"none of these variants of {project.name} can be built on this machine:{reasons}",
        hint="`kbuild doctor` shows what is there and what is missing",
    )


def _build_all(site: Site, plans: Sequence[VariantPlan]) -> tuple[Built, ...]:
    tidy(site.project.root, site.output)
    results = {made.variant: up_to_date(site, made) for made in plans}
    waiting = [made for made in plans if results[made.variant] is None]
    built = refused(site, waiting)
    sound = [made for made in waiting if made.variant not in built]
    built |= {result.variant: result for result in _together(site, sound)} if sound else {}
    return tuple(results[made.variant] or built[made.variant] for made in plans)


def _together(site: Site, plans: Sequence[VariantPlan]) -> list[Built]:
    """Build several variants under one budget."""
    from kbuild.build.budget import budget_of, opened
    from kbuild.build.schedule import Task, Together, run_all

    options, doors = site.options, site.doors
    budget = budget_of(options.jobs, options.memory, options.seconds)
    title = plans[0].variant if len(plans) == 1 else f"{len(plans)} variants"
    with (
        opened(budget, doors.cache, keeps=options.objects) as run,
        workshop_for(plans, run, doors) as workshop,
    ):
        with doors.ui.progress(title, 0) as progress:
            together = Together(progress)
            tasks = [
                Task(
                    made.variant,
                    partial(
                        attempt,
                        site,
                        made,
                        run=run,
                        tell=together.part(made.variant),
                        workshop=workshop,
                    ),
                    partial(fetch, site, made),
                )
                for made in longest_first(plans)
            ]
            ended = run_all(tasks, run, partial(_interrupt, doors, workshop))
        site.tell_noted()
        outcomes = {task.name: outcome for task, outcome in zip(tasks, ended, strict=True)}
        results = [outcomes[made.variant] or _not_started(made) for made in plans]
        return _concluded(site, plans, results, run)


def _interrupt(doors: Doors, workshop: Workshop | None) -> None:
    """End every process of the run: those that were started here, and those that compile DSLs."""
    doors.runner.stop()
    if workshop is not None:
        workshop.close()


def _not_started(made: VariantPlan) -> Built:
    error = IncompleteError("not started, the time budget was over")
    return Built(made.variant, "incomplete", error.message, error=error)


def _concluded(
    site: Site, plans: Sequence[VariantPlan], results: Sequence[Built], run: Run
) -> list[Built]:
    """Say what the launchers could not, keep the report, and keep the cache within its bounds."""
    from kbuild.build.conclude import conclude
    from kbuild.build.report import VariantOutcome

    outcomes = [
        VariantOutcome(
            made.variant, result.status, result.seconds, made.archs, result.path, result.images
        )
        for made, result in zip(plans, results, strict=True)
    ]
    folder = Workspace.report_of(site.project.root)
    counts = conclude(site.project.name, folder, outcomes, run, site.doors.ui)
    return [
        replace(result, objects=made, from_cache=hits)
        for result, (made, hits) in ((result, counts[result.variant]) for result in results)
    ]
