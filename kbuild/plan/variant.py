"""The plan of a variant: every decision in one place; and the state of the source that it is of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from kbuild.project import DEVELOPMENT_ID
from kbuild.sources.includes import CODE_SUFFIXES, IncludeGraph, scan_file
from kbuild.system.errors import ConfigError, Problem
from kbuild.system.git import Repository
from kbuild.system.processes import Runner
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version

CXX_LANGUAGE = "CXX"
ID_LENGTH = 7
_DIRTY = "_dirty"


@dataclass(frozen=True)
class Identity:
    """The state of a project's source: commit, dirtiness, and the short unique id.

    The id names the op namespace, so it must be the same on every run and differ between published
    states. In git it is the tree hash of the project's own folder (an unrelated commit elsewhere in
    the repository renames nothing), with `_dirty` when what is built is not what the commit holds:
    tracked files or submodules changed, or a source is not in the commit. In a repository without a
    commit it is a hash of the index; outside git, a hash of the sources' content.
    """

    unique_id: str
    """A valid tail of a C and Python identifier, e.g. `1a2b3c4` or `1a2b3c4_dirty`."""
    commit: str | None = None
    """Full object id of HEAD, None without one."""
    dirty: bool = False
    """True when what is built differs from the commit (or from the index without one)."""
    note: str = ""
    """A remark for the user, e.g. why git was not asked."""

    def for_development(self) -> Identity:
        """The same with the id of development builds.

        Another id changes macros, so everything would be compiled again after each commit.
        """
        return replace(self, unique_id=DEVELOPMENT_ID)


def identify(tree: SourceTree, sources: Iterable[str], runner: Runner) -> Identity:
    """The identity of the project at `tree.root`."""
    sources = tuple(sources)
    repository = Repository(tree.root, runner)
    head = repository.ask("rev-parse", "HEAD", "HEAD:./")
    if head is not None:
        commit, folder = head.split()
        dirty = repository.is_changed(".") or bool(repository.uncommitted(sources))
        return Identity(_mark(folder[:ID_LENGTH], dirty=dirty), commit, dirty)
    staged = repository.ask("ls-files", "--stage", "--", ".")
    if staged:
        dirty = repository.is_edited(".") or bool(repository.uncommitted(sources))
        digest = hashlib.sha256(staged.encode()).hexdigest()
        return Identity(_mark(digest[:ID_LENGTH], dirty=dirty), None, dirty)
    hasher = hashlib.sha256()
    for path in sorted(set(sources)):
        if path.endswith(CODE_SUFFIXES):
            with suppress(ConfigError):  # too large; whatever else is wrong is said below
                scan_file(tree, path)  # planning asks for it, and the file is read once for both
        hasher.update(f"{path}\0".encode() + tree.digest(path))
    refusal = repository.refusal()
    note = f"the commit is unknown: {refusal}" if refusal else ""
    return Identity(hasher.hexdigest()[:ID_LENGTH], note=note)


def _mark(unique_id: str, *, dirty: bool) -> str:
    return f"{unique_id}{_DIRTY}" if dirty else unique_id


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
        link_flags=(
            *link_flags(context, parts),
            *(flag for flag in planner.link_flags if not flag.startswith("-l")),
        )
        if is_compiled
        else (),
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
