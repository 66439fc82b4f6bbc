"""Plans of selected variants, and what this machine's toolchains say to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kbuild.errors import UsageError
from kbuild.identity import Identity
from kbuild.matrix.selection import Choice, Selection, select, variants
from kbuild.pathnames import unbuildable
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree
from kbuild.storage import shown
from kbuild.toolchains import ToolchainSource


def plan(
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
    chosen = select(project, selection)
    tree = tree or SourceTree(project.root)
    return make_plans(project, chosen, tree, runner, identity=identity, archs=archs)


def fitted(
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
        [choice for choice in variants(project) if str(choice.variant) in compilers],
        tree or SourceTree(project.root),
        runner,
        identity=identity,
        archs=archs,
        compilers=compilers,
    )
    remade = {made.variant: made for made in again}
    return tuple(remade.get(made.variant, made) for made in plans)


def refuse_names(folder: Path, plans: Iterable[VariantPlan]) -> None:
    """Refuse what CMake or ninja could not take, before they say so in other words or lose a file.

    Args:
        folder: where it is built.
        plans: what is built; Python-only variants are copied without CMake.

    Raises:
        UsageError: the path of the folder, or of a file of the package, cannot be quoted.
    """
    compiled = [made for made in plans if made.is_compiled]
    if compiled and (strange := unbuildable(str(folder), "project")):
        raise UsageError(
            f"nothing can be compiled in `{shown(folder)}`: the path has {strange}, "
            "which CMake or ninja cannot take",
            hint="rename the folder, or build a copy elsewhere",
        )
    for path in sorted({file.source for made in compiled for file in made.files}):
        if strange := unbuildable(path, "package"):
            raise UsageError(
                f"`{shown(path)}` cannot be packaged: its name has {strange}, "
                "which CMake cannot take",
                hint="rename it",
            )


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
