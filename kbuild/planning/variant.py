"""From a variant of a project to its plan: every decision in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbuild.backends import BACKENDS
from kbuild.errors import ConfigError, Problem
from kbuild.frameworks import FRAMEWORKS
from kbuild.identity import Identity, identify
from kbuild.matrix.selection import Choice
from kbuild.plan import Component, KernelFacts, Requirements, VariantPlan
from kbuild.planning.components import components
from kbuild.planning.desk import Desk
from kbuild.planning.files import content, packaged
from kbuild.project import Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree
from kbuild.version import Version


def make_plans(
    project: Project,
    choices: Sequence[Choice],
    tree: SourceTree,
    runner: Runner,
    *,
    identity: Identity | None = None,
    archs: Sequence[str] = (),
    compilers: Mapping[str, str] | None = None,
) -> tuple[VariantPlan, ...]:
    """The plans of the chosen variants, in their order.

    Args:
        project: the validated project.
        choices: variants of the project.
        tree: the project's files.
        runner: starts git when `identity` is None.
        identity: the state of the source, where the caller knows better than git.
        archs: what backends with archs are compiled for; all that each kernel asks for when empty.
        compilers: variant -> release of its device compiler, where it is not the variant's own.

    Raises:
        ConfigError: a kernel asks for archs that no toolkit of the variant can target.
    """
    identity = identity or identify(tree, content(project, tree), runner)
    plans: list[VariantPlan] = []
    problems: list[Problem] = []
    for choice in choices:
        try:
            compiler = (compilers or {}).get(str(choice.variant))
            plans.append(make_plan(project, choice, tree, identity, archs=archs, compiler=compiler))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return tuple(plans)


def make_plan(
    project: Project,
    choice: Choice,
    tree: SourceTree,
    identity: Identity,
    *,
    archs: Sequence[str] = (),
    compiler: str | None = None,
) -> VariantPlan:
    """The plan of one variant; see `make_plans`."""
    variant = choice.variant
    ops_name = f"_{project.python_name}_{variant.backend}_{identity.unique_id}"
    backend, framework = BACKENDS.get(variant.backend), FRAMEWORKS.get(variant.framework)
    release = Version.parse(compiler) if compiler else None
    desk = Desk(project, choice, tree, backend, framework, ops_name, tuple(archs), release)
    parts, notes = components(desk) if framework.compiled else ((), ())
    return VariantPlan(
        variant=str(variant),
        framework=variant.framework,
        backend=variant.backend,
        kernel=_facts(desk),
        unique_id=identity.unique_id,
        ops_name=ops_name,
        requires=_requirements(desk, parts),
        definitions=_definitions(desk) if parts else (),
        languages=backend.languages if parts else (),
        cxx_standard=framework.cxx_standard(choice.torch),
        components=parts,
        libraries=_libraries(desk) if parts else (),
        link_flags=_link_flags(desk) if parts else (),
        deployment_target=_deployment_target(desk),
        archs=_archs(desk, parts),
        files=packaged(desk),
        commit=identity.commit,
        dirty=identity.dirty,
        notes=(*notes, *filter(None, (identity.note,))),
    )


def _facts(desk: Desk) -> KernelFacts:
    general = desk.project.file.general
    table = general.backend_general(desk.backend.name)
    depends = (*general.kernel_depends, *(table.kernel_depends if table else ()))
    python = (*general.python_depends, *(table.python_depends if table else ()))
    return KernelFacts(
        name=general.name,
        python_name=general.python_name,
        version=general.version,
        license=general.license,
        upstream=general.upstream,
        source=general.source,
        python_depends=tuple(dict.fromkeys(python)),
        kernel_depends=tuple(
            depend.model_dump(by_alias=True, exclude_none=True) for depend in depends
        ),
    )


def _definitions(desk: Desk) -> tuple[str, ...]:
    backend = desk.backend.definitions if desk.framework.backend_macros else ()
    return (desk.backend.define, *backend)


def _libraries(desk: Desk) -> tuple[str, ...]:
    return (*desk.framework.libraries(), *desk.backend.libraries(desk.framework.name))


def _link_flags(desk: Desk) -> tuple[str, ...]:
    sections = desk.project.kernels_for(desk.backend.name).values()
    built = [section for section in sections if desk.backend.applies(section, desk.toolkit)]
    return desk.backend.link_flags(built, desk.toolkit)


def _deployment_target(desk: Desk) -> str | None:
    system = desk.choice.variant.system
    return desk.backend.deployment_target() if system and system.os == "darwin" else None


def _archs(desk: Desk, components: Sequence[Component]) -> tuple[str, ...]:
    noarch = desk.project.file.torch_noarch
    key = desk.backend.arch_key
    if not components:
        announced = getattr(noarch, key.replace("-", "_")) if noarch and key else None
        return tuple(sorted(announced or ()))
    device = set(desk.backend.languages) - {"CXX"}
    compiled = (part for part in components if part.languages & device)
    return tuple(sorted({arch for part in compiled for arch in part.archs}))


def _requirements(desk: Desk, components: Sequence[Component]) -> Requirements:
    variant = desk.choice.variant
    libraries = {name for part in components for name in part.depends}
    stable = variant.framework == "torch-stable-abi"
    needed = desk.floor if stable else desk.choice.torch
    return Requirements(
        backend=variant.backend,
        torch=str(needed) if needed and desk.framework.table == "torch" else None,
        torch_exact=not stable,
        toolkit=str(variant.backend_version) if variant.backend_version else None,
        tvm_ffi=str(variant.framework_version) if variant.framework == "tvm-ffi" else None,
        system=str(variant.system) if variant.system else None,
        libraries=tuple(sorted(libraries - {"torch", "tvm-ffi"})),
    )
