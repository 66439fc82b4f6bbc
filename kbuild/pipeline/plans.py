"""Plans of selected variants, and what this machine's toolchains say to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kbuild.config.rules.files import unsupported_characters
from kbuild.errors import UsageError
from kbuild.identity import Identity
from kbuild.plan import VariantPlan
from kbuild.planning.variant import make_plans
from kbuild.project import Project
from kbuild.runtime.os_errors import printable_path
from kbuild.runtime.processes import Runner
from kbuild.selection import Selection, VariantChoice, project_variants, select_variants
from kbuild.sourcetree import SourceTree
from kbuild.toolchains.base import ToolchainSource


def plan_variants(
    project: Project,
    selection: Selection,
    runner: Runner,
    *,
    identity: Identity | None = None,
    archs: Sequence[str] = (),
    tree: SourceTree | None = None,
) -> tuple[VariantPlan, ...]:
    """The plans of the selected variants; git is asked for an identity that is not given.

    A `tree` that the project was opened with has read its sources already.
    """
    chosen = select_variants(project, selection)
    tree = tree or SourceTree(project.root)
    return make_plans(project, chosen, tree, runner, identity=identity, archs=archs)


def replan_for_compilers(
    project: Project,
    plans: Sequence[VariantPlan],
    tools: ToolchainSource,
    runner: Runner,
    *,
    identity: Identity | None = None,
    archs: Sequence[str] = (),
    tree: SourceTree | None = None,
) -> tuple[VariantPlan, ...]:
    """The plans, made again where the device compiler here is of another release than the variant.

    Raises:
        ConfigError: that compiler targets none of the archs that are asked for.
    """
    compilers = {
        made.variant: release
        for made in plans
        if tools.refuses(made.requires) is None and (release := tools.compiler(made.requires))
    }
    if not compilers:
        return tuple(plans)
    again = make_plans(
        project,
        [choice for choice in project_variants(project) if str(choice.variant) in compilers],
        tree or SourceTree(project.root),
        runner,
        identity=identity,
        archs=archs,
        compilers=compilers,
    )
    remade = {made.variant: made for made in again}
    return tuple(remade.get(made.variant, made) for made in plans)


def validate_path_names(folder: Path, plans: Iterable[VariantPlan]) -> None:
    """Refuse what CMake or ninja could not take, before they say so in other words or lose a file.

    Args:
        folder: where it is built.
        plans: what is built; Python-only variants are copied without CMake.

    Raises:
        UsageError: the path of the folder, or of a file of the package, cannot be quoted.
    """
    compiled = [made for made in plans if made.is_compiled]
    if compiled and (strange := unsupported_characters(str(folder), "project")):
        raise UsageError(
            f"nothing can be compiled in `{printable_path(folder)}`: the path has {strange}, "
            "which CMake or ninja cannot take",
            hint="rename the folder, or build a copy elsewhere",
        )
    for path in sorted({file.source for made in compiled for file in made.files}):
        if strange := unsupported_characters(path, "package"):
            raise UsageError(
                f"`{printable_path(path)}` cannot be packaged: its name has {strange}, "
                "which CMake cannot take",
                hint="rename it",
            )


def with_all_candidates(made: VariantPlan) -> VariantPlan:
    """The plan with every candidate of its kernels in Python DSLs, and what chooses among them."""
    return replace(made, aot=tuple(replace(kernel, keep_all=True) for kernel in made.aot))


def with_toolchains(
    plans: Sequence[VariantPlan], tools: ToolchainSource
) -> tuple[VariantPlan, ...]:
    """The plans with the toolchain that would build each, where one fits; nothing is fetched."""
    return tuple(
        made.with_toolchain(tools.preview(made.requires))
        if tools.refuses(made.requires) is None
        else made
        for made in plans
    )


def unsupported_reasons(
    project: Project, choices: Sequence[VariantChoice], runner: Runner, tools: ToolchainSource
) -> dict[str, str | None]:
    """Per variant: why this machine cannot build it, or None."""
    plans = make_plans(project, choices, SourceTree(project.root), runner)
    return {made.variant: tools.refuses(made.requires) for made in plans}
