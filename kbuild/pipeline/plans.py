"""Adapts plans to this machine and its toolchains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.pipeline.toolchains import unsupported_plan_reason
from kbuild.plan.plan import VariantPlan
from kbuild.plan.selection import project_variants
from kbuild.plan.variant import Planner
from kbuild.project.config.rules.files import unsupported_characters
from kbuild.system.errors import UsageError
from kbuild.system.os_errors import printable_path

if TYPE_CHECKING:
    from kbuild.pipeline.options import BuildOptions
    from kbuild.pipeline.toolchains import Toolchains
    from kbuild.plan.project import Project
    from kbuild.system.processes import Runner
    from kbuild.system.sourcetree import SourceTree


def planner_for(
    project: Project, tree: SourceTree, options: BuildOptions, runner: Runner
) -> Planner:
    """The planner with the options of a build."""
    return Planner(
        project,
        tree,
        runner,
        options.identity,
        options.archs,
        options.dev,
        options.link_flags,
    )


def replan_for_compilers(
    planner: Planner, plans: Sequence[VariantPlan], tools: Toolchains
) -> tuple[VariantPlan, ...]:
    """The plans, made again where the device compiler here is of another release than the variant.

    Raises:
        ConfigError: that compiler targets none of the archs that are asked for.
    """
    compilers = {
        plan.variant: release
        for plan in plans
        if unsupported_plan_reason(tools, plan) is None
        and (release := tools.compiler(plan.requires))
    }
    if not compilers:
        return tuple(plans)
    choices = project_variants(planner.project)
    again = planner.plans([c for c in choices if str(c.variant) in compilers], compilers)
    replanned = {plan.variant: plan for plan in again}
    return tuple(replanned.get(plan.variant, plan) for plan in plans)


def validate_path_names(folder: Path, plans: Iterable[VariantPlan]) -> None:
    """Refuse what CMake or ninja could not take, before they say so in other words or lose a file.

    Args:
        folder: where it is built.
        plans: what is built; Python-only variants are copied without CMake.

    Raises:
        UsageError: the path of the folder, or of a file of the package, cannot be quoted.
    """
    compiled = [plan for plan in plans if plan.is_compiled]
    if compiled and (characters := unsupported_characters(str(folder), "project")):
        raise UsageError(
            f"nothing can be compiled in `{printable_path(folder)}`: the path has {characters}, "
            "which CMake or ninja cannot take",
            hint="rename the folder, or build a copy elsewhere",
        )
    for path in sorted({file.source for plan in compiled for file in plan.files}):
        if characters := unsupported_characters(path, "package"):
            raise UsageError(
                f"`{printable_path(path)}` cannot be packaged: its name has {characters}, "
                "which CMake cannot take",
                hint="rename it",
            )


def with_all_candidates(plan: VariantPlan) -> VariantPlan:
    """The plan with every candidate of its kernels in Python DSLs, and what chooses among them."""
    return replace(plan, aot=tuple(replace(kernel, keep_all=True) for kernel in plan.aot))


def with_toolchains(plans: Sequence[VariantPlan], tools: Toolchains) -> tuple[VariantPlan, ...]:
    """The plans with the toolchain that would build each, where one fits; nothing is fetched."""
    return tuple(
        plan.with_toolchain(tools.preview(plan.requires))
        if unsupported_plan_reason(tools, plan) is None
        else plan
        for plan in plans
    )
