"""Plans of selected variants, and what this machine's toolchains say to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kbuild.identity import Identity
from kbuild.matrix.selection import Choice, Selection, select, variants
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree
from kbuild.toolchains import ToolchainSource


def plan(
    project: Project,
    selection: Selection,
    runner: Runner,
    *,
    identity: Identity | None = None,
    archs: Sequence[str] = (),
) -> tuple[VariantPlan, ...]:
    """The plans of the selected variants; git is asked for an identity that is not given."""
    chosen = select(project, selection)
    tree = SourceTree(project.root)
    return make_plans(project, chosen, tree, runner, identity=identity, archs=archs)


def fitted(
    project: Project,
    plans: Sequence[VariantPlan],
    tools: ToolchainSource,
    runner: Runner,
    *,
    identity: Identity | None = None,
    archs: Sequence[str] = (),
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
        [choice for choice in variants(project) if str(choice.variant) in compilers],
        SourceTree(project.root),
        runner,
        identity=identity,
        archs=archs,
        compilers=compilers,
    )
    remade = {made.variant: made for made in again}
    return tuple(remade.get(made.variant, made) for made in plans)


def keeping_all(made: VariantPlan) -> VariantPlan:
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


def refusals(
    project: Project, choices: Sequence[Choice], runner: Runner, tools: ToolchainSource
) -> dict[str, str | None]:
    """Per variant: why this machine cannot build it, or None."""
    plans = make_plans(project, choices, SourceTree(project.root), runner)
    return {made.variant: tools.refuses(made.requires) for made in plans}
