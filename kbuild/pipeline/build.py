"""Builds all selected variants on this machine, under one budget of processes and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.package import remove_leftovers
from kbuild.pipeline.result import BuildResult
from kbuild.pipeline.toolchains import (
    find_toolchains,
    replan_for_compilers,
    unsupported_plan_reason,
)
from kbuild.pipeline.variant import (
    BuildContext,
    prefetch_toolchain,
    source_check_failures,
    try_build,
    up_to_date_result,
)
from kbuild.plan.generate.project import validate_path_names
from kbuild.plan.plan import AotKernel, VariantPlan
from kbuild.plan.project import Project
from kbuild.plan.selection import project_variants, reason_lines
from kbuild.plan.variant import Planner
from kbuild.project.config.display import display_path
from kbuild.system.errors import ConfigError, IncompleteError, Problem, ToolchainError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.store import open_store
from kbuild.system.temporary import remove_abandoned_folders
from kbuild.system.workspace import Workspace

if TYPE_CHECKING:
    from kbuild.dsl.aot_compiler import AotCompiler, ImageFiller
    from kbuild.pipeline.executors import UnitFiller
    from kbuild.system.budget import Run


_HEADERS_SIZE = 10_000.0
"""Bytes of source that take as long to compile as the headers that every unit includes."""
_LAUNCHER_SIZE = 300_000.0
"""The same for the launcher of a kernel in a DSL, beside images of Triton. Those of other DSLs take
longer, and the rest is then not estimated before a launcher was compiled."""
_FINISH_SIZE = 5_000.0
"""The same for linking, checking and loading a library."""
_ELSEWHERE = 32
"""Number of variants that may wait for other machines at a time."""


def longest_first(plans: Sequence[VariantPlan]) -> tuple[VariantPlan, ...]:
    """The plans in the order in which they are started.

    First one of each toolkit, those with the most architectures in front: these compile device code
    that nobody has compiled yet, and it takes longest. The others, whose device code is the same,
    keep their order: by the time they start, the cache has it.
    """
    firsts: dict[tuple[str, str | None], VariantPlan] = {}
    for plan in plans:
        firsts.setdefault((plan.requires.backend, plan.requires.toolkit), plan)
    front = sorted(firsts.values(), key=lambda plan: -len(plan.archs))
    leading = {plan.variant for plan in front}
    return (*front, *(plan for plan in plans if plan.variant not in leading))


@contextmanager
def aot_compiler_for(
    plans: Sequence[VariantPlan], run: Run, services: Services, filler: ImageFiller | None = None
) -> Iterator[AotCompiler | None]:
    """The compiler of DSL kernels if a plan needs one; its workers start with the first work."""
    if not any(plan.aot for plan in plans):
        yield None
        return
    from kbuild.dsl.aot_compiler import AotCompiler
    from kbuild.dsl.environment import DslEnvironments
    from kbuild.system.store import open_store
    from kbuild.toolchains.wheels.installer import WheelInstaller

    installer = WheelInstaller(
        services.runner,
        open_store(services.cache),
        downloads=services.ui.downloads,
    )
    with closing(AotCompiler(run, DslEnvironments(installer), filler=filler)) as aot_compiler:
        yield aot_compiler


@contextmanager
def filler_for(
    context: BuildContext, plans: Sequence[VariantPlan], run: Run
) -> Iterator[UnitFiller | None]:
    """The filler of the executor that the options name."""
    options, services = context.options, context.services
    if not options.executor:
        yield None
        return
    local = {"--with-source": options.sources, "--python": options.python}
    reasons = [f"{name} names files of this machine" for name, value in local.items() if value]
    reasons += ["KBUILD_CACHE=off keeps no objects"] * (not run.keeps)
    reasons += [f"`{run.tool}` keeps the objects"] * bool(run.tool)
    if reasons:
        services.ui.warn(f"the executor is not used: {reasons[0]}")
        yield None
        return
    from kbuild.pipeline.executors import BuildRequest, find_executor

    by_variant = {plan.variant: plan for plan in plans}
    request = BuildRequest(context.project.root, by_variant, options.toolchain)
    executor, address = find_executor(options.executor)
    with executor.fill_cache(address, request, run, services) as filler:
        yield filler


def build(project: Project, options: BuildOptions, services: Services) -> tuple[BuildResult, ...]:
    """Build the selected variants that this machine can build; skip the others with a reason.

    Raises:
        ConfigError: a file is too large to be shipped.
        ToolchainError: no selected variant can be built here.
    """
    # A `toolchain prune` at the same time would remove what this build reads.
    with open_store(services.cache).in_use():
        return _build(project, options, services)


def _build(project: Project, options: BuildOptions, services: Services) -> tuple[BuildResult, ...]:
    remove_abandoned_folders()
    tools = find_toolchains(options, services)
    context = BuildContext(project, tools, options, services)
    tree = SourceTree(project.root)
    planner = options.planner(project, tree, services.runner)
    plans = planner.select(options.selection)
    validate_path_names(project.root, plans)
    refusals = {plan.variant: unsupported_plan_reason(tools, plan) for plan in plans}
    buildable = [plan for plan in plans if refusals[plan.variant] is None]
    if not buildable and not options.selection.is_explicit:
        buildable = _variants_for_installed_torch(context, planner)
    skipped = [BuildResult(name, "skipped", reason) for name, reason in refusals.items() if reason]
    if not buildable:
        lines = "".join(f"\n    {line}" for line in reason_lines(refusals))
        raise ToolchainError(
            f"none of these variants of {project.name} can be built on this machine:{lines}",
            hint="`kbuild doctor` shows what is there and what is missing",
        )
    fitting = replan_for_compilers(planner, buildable, tools)
    if options.keep_all:
        fitting = tuple(
            replace(plan, aot=tuple(replace(kernel, keep_all=True) for kernel in plan.aot))
            for plan in fitting
        )
    _validate_file_sizes(project.root, fitting, options.max_file_size)
    for plan in fitting:
        context.not_run(plan)  # a wrong emulator is an error before anything is compiled
    # Before `up_to_date_result`: an interrupted move may have left the old variant under another
    # name.
    remove_leftovers(context.project.root, context.output)
    results = {plan.variant: up_to_date_result(context, plan) for plan in fitting}
    waiting = [plan for plan in fitting if results[plan.variant] is None]
    built = source_check_failures(context, waiting)
    sound = [plan for plan in waiting if plan.variant not in built]
    built |= (
        {result.variant: result for result in _build_in_parallel(context, sound)} if sound else {}
    )
    build_outdated = tuple(results[plan.variant] or built[plan.variant] for plan in fitting)
    return (*build_outdated, *skipped)


def _validate_file_sizes(root: Path, plans: Sequence[VariantPlan], limit: int) -> None:
    """Refuse files that nobody can have meant to ship, before anything is compiled.

    Raises:
        ConfigError: with every file that is larger than the limit.
    """
    sizes = {
        path: (root / path).stat().st_size
        for path in sorted({file.source for plan in plans for file in plan.files})
    }
    large = {path: size for path, size in sizes.items() if size > limit}
    if not large:
        return
    from kbuild.system.quantities import size_text

    problems = [
        Problem(
            display_path(root, path),
            0,
            "",
            f"it has {size_text(size)}, and the limit for a file is {size_text(limit)}",
            "keep it out of the package, or raise `--max-file-size`",
        )
        for path, size in large.items()
    ]
    raise ConfigError(problems)


def _variants_for_installed_torch(context: BuildContext, planner: Planner) -> list[VariantPlan]:
    """Variants outside a plain build that this machine's Torch happens to fit."""
    wanted = context.options.selection.backends or context.project.file.general.backends
    choices = project_variants(context.project)
    plans = planner.plans(choice for choice in choices if choice.variant.backend in wanted)
    return [plan for plan in plans if unsupported_plan_reason(context.tools, plan) is None]


def _build_in_parallel(context: BuildContext, plans: Sequence[VariantPlan]) -> list[BuildResult]:
    """Build several variants under one budget."""
    from kbuild.system.budget import make_budget, open_run
    from kbuild.system.executor import CombinedProgress, VariantTask, run_tasks

    options, services = context.options, context.services
    budget = make_budget(options.jobs, options.memory, options.seconds)
    title = plans[0].variant if len(plans) == 1 else f"{len(plans)} variants"
    with (
        open_run(budget, services.cache, keeps=options.use_object_cache) as run,
        filler_for(context, plans, run) as filler,
        aot_compiler_for(plans, run, services, filler) as aot_compiler,
    ):
        expected, is_guessed = expected_units(context.project.root, plans)
        with services.ui.progress(title, sum(map(len, expected.values()))) as progress:
            together = CombinedProgress(progress, expected, is_guessed=is_guessed)

            def attempt(plan: VariantPlan) -> BuildResult:
                tell = together.part(plan.variant)
                try:
                    return try_build(
                        context, plan, run=run, tell=tell, aot_compiler=aot_compiler, filler=filler
                    )
                finally:
                    together.finish(plan.variant)

            tasks = [
                VariantTask(
                    plan.variant, partial(attempt, plan), partial(prefetch_toolchain, context, plan)
                )
                for plan in longest_first(plans)
            ]
            stop = partial(_stop_processes, services, aot_compiler)
            ended = run_tasks(tasks, run, stop, more=_ELSEWHERE if filler is not None else 0)
        context.report_repeated_warnings()
        outcomes = {task.name: outcome for task, outcome in zip(tasks, ended, strict=True)}
        late = IncompleteError("not started: the time budget was used up")
        results = [
            outcomes[plan.variant]
            or BuildResult(plan.variant, "incomplete", late.message, error=late)
            for plan in plans
        ]
        return _finish(context, results, run)


def expected_units(
    root: Path, plans: Sequence[VariantPlan]
) -> tuple[dict[str, dict[str, float]], bool]:
    """Variant -> unit -> how long it takes, by earlier builds and by the sizes of the sources.

    The second value is True without earlier builds: the sizes say little about different kinds.
    """
    from kbuild.build.unit_log import UNIT_LOG_FILE, read_log
    from kbuild.system.executor import IMAGES

    log = Workspace.report_of(root) / UNIT_LOG_FILE
    units = read_log(log).units if log.is_file() else ()
    # The time of a hit is that of a look-up, and says nothing about compiling.
    seconds = {
        unit.unit: unit.end - unit.start
        for unit in units
        if unit.cache == "miss" and not unit.image
    }
    sizes: dict[str, dict[str, float]] = {}
    # Variants share images, so what the second one waits for is what the first one compiles.
    shared: set[tuple[str, str, str]] = set()
    for plan in plans:
        own = sizes.setdefault(plan.variant, {f"{plan.variant}.so": _FINISH_SIZE})
        for source in (source for part in plan.components for source in part.compiled):
            # Device compilers translate a source once for each arch.
            count = len(plan.archs) if source.language not in {"CXX", "C"} else 1
            own[source.path] = (_HEADERS_SIZE + _size_of(root / source.path)) * max(count, 1)
        for kernel in plan.aot:
            counts = _image_counts(kernel, root)
            for target in kernel.targets:
                facts = kernel.name, kernel.flavour, target
                count = 0 if facts in shared else max(counts[target], 1)
                own[f"{IMAGES}{kernel.name} for {target}"] = count * _HEADERS_SIZE
                shared.add(facts)
            launcher = f".kbuild/{plan.variant}/project/aot/{kernel.name}.cpp"
            own[launcher] = _LAUNCHER_SIZE
    known = {path: size for own in sizes.values() for path, size in own.items() if path in seconds}
    # Sizes become seconds at the speed of those units whose time is known.
    rate = sum(seconds[path] for path in known) / sum(known.values()) if known else 1.0
    expected = {
        variant: {path: seconds.get(path, size * rate) for path, size in own.items()}
        for variant, own in sizes.items()
    }
    return expected, not known


def _image_counts(kernel: AotKernel, root: Path) -> Counter[str]:
    """Count the images of each target, as far as they are known before sources are read."""
    from kbuild.dsl.candidates import planned_units

    return Counter(
        str(unit.target) for units in planned_units(kernel, root).values() for unit in units or ()
    )


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _stop_processes(services: Services, aot_compiler: AotCompiler | None) -> None:
    """End every process of the run: those that were started here, and those that compile DSLs."""
    services.runner.stop()
    if aot_compiler is not None:
        aot_compiler.close()


def _finish(context: BuildContext, results: Sequence[BuildResult], run: Run) -> list[BuildResult]:
    """Print the launchers' warnings, keep the log of units, and sweep the cache."""
    from kbuild.build.unit_log import finish_run

    log = finish_run(Workspace.report_of(context.project.root), run, context.services.ui)
    counts = {result.variant: log.counts(result.variant) for result in results}
    return [
        replace(result, objects=objects, from_cache=hits)
        for result, (objects, hits) in ((result, counts[result.variant]) for result in results)
    ]
