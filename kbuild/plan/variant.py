"""The plan of a variant: every decision in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kbuild.backends import BACKENDS
from kbuild.backends.base import HOST_LANGUAGES
from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.components import components, libraries, link_flags, linking_notes
from kbuild.plan.context import AotKernels, PlanningContext, packaged_files, source_files
from kbuild.plan.plan import (
    BINDING,
    AotKernel,
    Component,
    KernelInfo,
    Requirements,
    VariantPlan,
)
from kbuild.plan.project import Project
from kbuild.plan.selection import Selection, VariantChoice, select_variants
from kbuild.project.identity import Identity, identify
from kbuild.sources.includes import IncludeGraph
from kbuild.system.errors import ConfigError, Problem
from kbuild.system.processes import Runner
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version

CXX_LANGUAGE = "CXX"


@dataclass(frozen=True)
class Planner:
    """Plans the variants of a project.

    A command has one of them: git is asked once, a file is read once for all variants, and a
    variant is planned once.
    """

    project: Project
    tree: SourceTree
    runner: Runner
    """Starts git when `known_identity` is None."""
    known_identity: Identity | None = None
    """The state of the source, where the caller knows better than git."""
    archs: tuple[str, ...] = ()
    """Archs for backends that have archs; all that each kernel asks for if empty."""
    dev: bool = False
    """True if names stay the same while files are edited; see `Identity.for_development`."""
    link_flags: tuple[str, ...] = ()
    """Flags of the extension's link, after those that the project has."""
    _plans: dict[tuple[VariantChoice, str | None], VariantPlan] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def identity(self) -> Identity:
        """The state of the source."""
        if self.known_identity is not None:
            return self.known_identity
        identity = identify(self.tree, source_files(self.project, self.tree), self.runner)
        return identity.for_development() if self.dev else identity

    @cached_property
    def includes(self) -> IncludeGraph:
        """The includes of the project's files."""
        return IncludeGraph(self.tree)

    def select(self, selection: Selection) -> tuple[VariantPlan, ...]:
        """The plans of the selected variants.

        Raises:
            ConfigError: see `plans`.
            UsageError: see `select_variants`.
        """
        return self.plans(select_variants(self.project, selection))

    def plans(
        self, choices: Iterable[VariantChoice], compilers: Mapping[str, str | None] | None = None
    ) -> tuple[VariantPlan, ...]:
        """The plans of variants of the project, in their order.

        Args:
            choices: variants of the project.
            compilers: variant -> release of its device compiler, where it is not the variant's own.

        Raises:
            ConfigError: a kernel asks for archs that no toolkit of the variant can target.
        """
        plans: list[VariantPlan] = []
        problems: list[Problem] = []
        for choice in choices:
            key = choice, (compilers or {}).get(str(choice.variant))
            try:
                if key not in self._plans:
                    self._plans[key] = _make_plan(self, *key)
                plans.append(self._plans[key])
            except ConfigError as error:
                # Report the errors of all variants at once.
                problems.extend(error.problems)
        if problems:
            raise ConfigError(problems)
        return tuple(plans)


def _make_plan(planner: Planner, choice: VariantChoice, compiler: str | None) -> VariantPlan:
    variant, identity = choice.variant, planner.identity
    ops_name = f"_{planner.project.python_name}_{variant.backend}_{identity.unique_id}"
    framework = FRAMEWORKS.get(variant.framework)
    context = PlanningContext(
        planner.project,
        choice,
        planner.tree,
        BACKENDS.get(variant.backend),
        framework,
        planner.includes,
        ops_name,
        planner.archs,
        Version.parse(compiler) if compiler else None,
    )
    parts, notes = components(context) if framework.compiled else ((), ())
    dsl = _dsl_kernels(context)
    is_compiled = bool(parts or dsl.kernels)
    needs_toolkit = is_compiled and not (dsl.kernels and _needs_only_cxx(context, parts))
    languages = context.backend.languages if needs_toolkit else (CXX_LANGUAGE,)
    extra = {language for part in parts for language in part.languages}.difference(languages)
    system = context.choice.variant.system
    return VariantPlan(
        variant=str(variant),
        framework=variant.framework,
        backend=variant.backend,
        kernel=_facts(context),
        unique_id=identity.unique_id,
        ops_name=ops_name,
        requires=_requirements(context, parts, dsl.kernels, needs_toolkit=needs_toolkit),
        definitions=_definitions(context) if is_compiled else (),
        languages=(*languages, *sorted(extra, reverse=True)) if is_compiled else (),
        cxx_standard=framework.cxx_standard(choice.torch),
        components=parts,
        libraries=_libraries(planner, context, parts, needs_toolkit) if is_compiled else (),
        link_flags=_link_flags(planner, context, parts) if is_compiled else (),
        deployment_target=(
            context.backend.deployment_target() if system and system.os == "darwin" else None
        ),
        archs=_archs(context, parts, dsl.kernels),
        files=packaged_files(context, {file.target for file in dsl.generated}),
        commit=identity.commit,
        dirty=identity.dirty,
        notes=(*notes, *linking_notes(context, parts), *dsl.notes, *filter(None, (identity.note,))),
        aot=dsl.kernels,
        generated=dsl.generated,
        op_modules=dsl.op_modules,
    )


def _libraries(
    planner: Planner, context: PlanningContext, parts: tuple[Component, ...], needs_toolkit: bool
) -> tuple[str, ...]:
    """Libraries of the backend and the framework, then those of the caller's link flags."""
    own = libraries(context, parts, needs_toolkit=needs_toolkit)
    # CMake writes link flags before the objects, where a linker would ignore a static library.
    return (*own, *(flag for flag in planner.link_flags if flag.startswith("-l")))


def _link_flags(
    planner: Planner, context: PlanningContext, parts: tuple[Component, ...]
) -> tuple[str, ...]:
    own = link_flags(context, parts)
    return (*own, *(flag for flag in planner.link_flags if not flag.startswith("-l")))


def _dsl_kernels(context: PlanningContext) -> AotKernels:
    """The kernels in DSLs; nothing is read or imported for none."""
    is_compiled = context.framework.compiled
    if not is_compiled or not context.project.dsl_kernels_for(context.backend.name):
        return AotKernels()
    from kbuild.plan.aot import aot_kernels

    return aot_kernels(context)


def _facts(context: PlanningContext) -> KernelInfo:
    general = context.project.file.general
    table = general.backend_general(context.backend.name)
    depends = (*general.kernel_depends, *(table.kernel_depends if table else ()))
    python = (*general.python_depends, *(table.python_depends if table else ()))
    return KernelInfo(
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
        kernels_minver=general.kernels_minver,
    )


def _definitions(context: PlanningContext) -> tuple[str, ...]:
    backend = context.backend.definitions if context.framework.backend_macros else ()
    return (context.backend.define, *backend)


def _needs_only_cxx(context: PlanningContext, components: Sequence[Component]) -> bool:
    """True when a C++ compiler is all that the sources need: device code comes from DSLs alone."""
    host = {CXX_LANGUAGE, *HOST_LANGUAGES.values()}
    if any(part.name != BINDING or part.languages - host for part in components):
        return False
    from kbuild.plan.aot import sees_device_headers

    return not any(
        sees_device_headers(context, [source.path for source in part.sources], part.include)
        for part in components
    )


def _archs(
    context: PlanningContext, components: Sequence[Component], kernels: Sequence[AotKernel]
) -> tuple[str, ...]:
    noarch = context.project.file.torch_noarch
    key = context.backend.arch_key
    if not components and not kernels:
        listed = getattr(noarch, key.replace("-", "_")) if noarch and key else None
        return tuple(sorted(listed or ()))
    device = context.backend.device_languages
    compiled = (part for part in components if part.languages & device)
    archs = {arch for part in compiled for arch in part.archs}
    if kernels:
        from kbuild.plan.aot import announced_archs

        archs |= announced_archs(kernels)
    return tuple(sorted(archs))


def _requirements(
    context: PlanningContext,
    components: Sequence[Component],
    kernels: Sequence[AotKernel],
    *,
    needs_toolkit: bool,
) -> Requirements:
    variant = context.choice.variant
    toolkit = variant.backend_version if needs_toolkit or not kernels else None
    headers = {name for part in components for name in part.depends}
    stable = variant.framework == "torch-stable-abi"
    needed = context.floor if stable else context.choice.torch
    return Requirements(
        backend=variant.backend
        if needs_toolkit or not kernels
        else next(backend.name for backend in BACKENDS if backend.runs_on_cpu),
        torch=str(needed) if needed and context.framework.table == "torch" else None,
        torch_exact=not stable,
        toolkit=str(toolkit) if toolkit else None,
        tvm_ffi=str(variant.framework_version) if variant.framework == "tvm-ffi" else None,
        system=str(variant.system) if variant.system else None,
        libraries=tuple(sorted(headers - {"torch", "tvm-ffi"})),
    )
