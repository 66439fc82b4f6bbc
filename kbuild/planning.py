"""From a project and one of its variants to the plan: every decision in one place."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kbuild.backends import BACKENDS, Backend
from kbuild.backends.base import Archs, UnitFlags
from kbuild.config.model import KernelSection, TorchSection, TvmFfiSection
from kbuild.errors import ConfigError, Problem
from kbuild.frameworks import FRAMEWORKS, Framework
from kbuild.identity import Identity, identify
from kbuild.includes import mentions, reachable
from kbuild.matrix.selection import Choice
from kbuild.plan import (
    BINDING,
    Component,
    KernelFacts,
    PackagedFile,
    Requirements,
    Source,
    VariantPlan,
)
from kbuild.project import BUILD_FILE, Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree
from kbuild.version import Version

GENERATED_OPS = "_ops.py"
_USUAL_INCLUDE = "csrc"
_PYTHON_SUFFIXES = ("py", "pyi")


@dataclass(frozen=True)
class _Desk:
    """What the planning of one variant looks at."""

    project: Project
    choice: Choice
    tree: SourceTree
    backend: Backend
    framework: Framework
    ops_name: str

    @property
    def toolkit(self) -> Version | None:
        return self.choice.variant.backend_version

    @property
    def floor(self) -> Version | None:
        torch = self.project.file.torch
        return torch.stable_abi_for(self.backend.name) if torch else None


def make_plans(
    project: Project,
    choices: Sequence[Choice],
    tree: SourceTree,
    runner: Runner,
    identity: Identity | None = None,
) -> tuple[VariantPlan, ...]:
    """The plans of the chosen variants, in their order.

    Args:
        project: the validated project.
        choices: variants of the project.
        tree: the project's files.
        runner: starts git when `identity` is None.
        identity: the state of the source, where the caller knows better than git.

    Raises:
        ConfigError: a kernel asks for archs that no toolkit of the variant can target.
    """
    identity = identity or identify(tree, content(project, tree), runner)
    plans: list[VariantPlan] = []
    problems: list[Problem] = []
    for choice in choices:
        try:
            plans.append(make_plan(project, choice, tree, identity))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return tuple(plans)


def make_plan(
    project: Project, choice: Choice, tree: SourceTree, identity: Identity
) -> VariantPlan:
    """The plan of one variant; see `make_plans`."""
    variant = choice.variant
    ops_name = f"_{project.python_name}_{variant.backend}_{identity.unique_id}"
    backend, framework = BACKENDS.get(variant.backend), FRAMEWORKS.get(variant.framework)
    desk = _Desk(project, choice, tree, backend, framework, ops_name)
    components, notes = _components(desk) if framework.compiled else ((), ())
    return VariantPlan(
        variant=str(variant),
        framework=variant.framework,
        backend=variant.backend,
        kernel=_facts(desk),
        unique_id=identity.unique_id,
        ops_name=ops_name,
        requires=_requirements(desk, components),
        definitions=_definitions(desk) if components else (),
        languages=backend.languages if components else (),
        cxx_standard=framework.cxx_standard(choice.torch),
        components=components,
        libraries=_libraries(desk) if components else (),
        link_flags=_link_flags(desk) if components else (),
        deployment_target=_deployment_target(desk),
        archs=_archs(desk, components),
        files=_packaged(desk),
        commit=identity.commit,
        dirty=identity.dirty,
        notes=notes,
    )


def content(project: Project, tree: SourceTree) -> tuple[str, ...]:
    """The project's own sources: what names the build when git does not."""
    file = project.file
    sections = [*file.kernel.values(), *(t for t in (file.torch, file.tvm_ffi) if t is not None)]
    listed = [path for section in sections for path in section.src]
    folders = [folder for section in sections for folder in section.include]
    roots = {framework.package_root for framework in FRAMEWORKS}
    walked = [
        path
        for folder in {*folders, *roots}
        if tree.is_dir(folder)
        for path in tree.walk(folder, skip=("build",))
    ]
    paths = {posixpath.normpath(path) for path in (BUILD_FILE, *listed, *walked)}
    return tuple(sorted(path for path in paths if PurePosixPath(path).name != GENERATED_OPS))


def _facts(desk: _Desk) -> KernelFacts:
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


def _definitions(desk: _Desk) -> tuple[str, ...]:
    backend = desk.backend.definitions if desk.framework.backend_macros else ()
    return (desk.backend.define, *backend)


def _components(desk: _Desk) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    parts, notes = [_binding(desk)], []
    for name, section in desk.project.kernels_for(desk.backend.name).items():
        if not desk.backend.applies(section, desk.toolkit):
            notes.append(f"kernel.{name} is left out: it asks for a newer {desk.backend.title}")
            continue
        archs = _kernel_archs(desk, name, section)
        notes.extend(f"kernel.{name}: {reason}" for reason in archs.dropped)
        parts.append(_kernel(desk, name, section, archs))
    return tuple(parts), tuple(notes)


def _binding(desk: _Desk) -> Component:
    section = desk.project.file.framework_table(desk.framework.table)
    assert isinstance(section, (TorchSection, TvmFfiSection))  # noqa: S101 - compiled frameworks
    own = UnitFlags((("CXX", section.cxx_flags),) if section.cxx_flags else ())
    sources = _sources(desk, section.src)
    archs = _binding_archs(desk, sources)
    return Component(
        name=BINDING,
        sources=sources,
        include=_include(desk, section.include),
        definitions=(
            *desk.framework.definitions(desk.ops_name, desk.floor),
            f"{desk.framework.name_macro}={desk.ops_name}",
        ),
        flags=_joined(
            desk.backend.binding_flags(desk.toolkit),
            desk.backend.arch_flags(archs, desk.toolkit) if archs.names else UnitFlags(),
            own,
        ),
        archs=archs.names,
        depends=(desk.framework.table,),
    )


def _binding_archs(desk: _Desk, sources: Sequence[Source]) -> Archs:
    """The toolkit's own archs when the bindings hold device code, which has no list of its own."""
    device = set(desk.backend.languages) - {"CXX"}
    if any(source.language in device for source in sources):
        return desk.backend.archs(None, desk.toolkit)
    return Archs()


def _kernel(desk: _Desk, name: str, section: KernelSection, archs: Archs) -> Component:
    sees_torch = "torch" in section.depends or desk.framework.table != "torch"
    own = desk.backend.flags(section, archs, desk.toolkit)
    common = desk.backend.binding_flags(desk.toolkit) if sees_torch else UnitFlags()
    return Component(
        name=name,
        sources=_sources(desk, section.src),
        include=_include(desk, section.include),
        definitions=_kernel_definitions(desk, section, sees_framework=sees_torch),
        flags=_joined(common, own),
        archs=archs.names,
        depends=_depends(desk, section),
    )


def _depends(desk: _Desk, section: KernelSection) -> tuple[str, ...]:
    """Torch is seen by those that ask for it; another framework by all, and instead of Torch."""
    if desk.framework.table == "torch":
        return section.depends
    return (desk.framework.table, *(name for name in section.depends if name != "torch"))


def _kernel_definitions(
    desk: _Desk, section: KernelSection, *, sees_framework: bool
) -> tuple[str, ...]:
    """The op namespace goes only where it is used: a new id then recompiles nothing else."""
    macro = desk.framework.name_macro
    files = {
        path for source in section.src for path in reachable(desk.tree, source, section.include)
    }
    uses_name = mentions(desk.tree, files, macro)
    return (
        *(desk.framework.definitions(desk.ops_name, desk.floor) if sees_framework else ()),
        *((f"{macro}={desk.ops_name}",) if uses_name else ()),
    )


def _kernel_archs(desk: _Desk, name: str, section: KernelSection) -> Archs:
    key = desk.backend.arch_key
    requested = getattr(section, key.replace("-", "_")) if key else None
    try:
        return desk.backend.archs(requested, desk.toolkit)
    except ValueError as error:
        where = f"kernel.{name}.{key}"
        problem = Problem(BUILD_FILE, 0, where, f"{error} (variant {desk.choice.variant})")
        raise ConfigError([problem]) from None


def _sources(desk: _Desk, paths: Iterable[str]) -> tuple[Source, ...]:
    distinct = dict.fromkeys(posixpath.normpath(path) for path in paths)
    return tuple(Source(path, desk.backend.language_of(path)) for path in distinct)


def _include(desk: _Desk, folders: Sequence[str]) -> tuple[str, ...]:
    """The section's folders; `csrc` as well when there is one, as in Hugging Face's builder."""
    usual = (_USUAL_INCLUDE,) if desk.tree.is_dir(_USUAL_INCLUDE) else ()
    return tuple(dict.fromkeys(posixpath.normpath(folder) for folder in (*folders, *usual)))


def _joined(*parts: UnitFlags) -> tuple[tuple[str, tuple[str, ...]], ...]:
    joined: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for language, flags in part.by_language:
            joined[language] = (*joined.get(language, ()), *flags)
    return tuple(joined.items())


def _libraries(desk: _Desk) -> tuple[str, ...]:
    return (*desk.framework.libraries(), *desk.backend.libraries(desk.framework.name))


def _link_flags(desk: _Desk) -> tuple[str, ...]:
    sections = desk.project.kernels_for(desk.backend.name).values()
    built = [section for section in sections if desk.backend.applies(section, desk.toolkit)]
    return desk.backend.link_flags(built, desk.toolkit)


def _deployment_target(desk: _Desk) -> str | None:
    system = desk.choice.variant.system
    return desk.backend.deployment_target() if system and system.os == "darwin" else None


def _archs(desk: _Desk, components: Sequence[Component]) -> tuple[str, ...]:
    noarch = desk.project.file.torch_noarch
    key = desk.backend.arch_key
    if not components:
        announced = getattr(noarch, key.replace("-", "_")) if noarch and key else None
        return tuple(sorted(announced or ()))
    return tuple(sorted({arch for part in components for arch in part.archs}))


def _requirements(desk: _Desk, components: Sequence[Component]) -> Requirements:
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


def _packaged(desk: _Desk) -> tuple[PackagedFile, ...]:
    root = f"{desk.framework.package_root}/{desk.project.python_name}"
    table = desk.project.file.framework_table(desk.project.file.framework_key)
    suffixes = {*_PYTHON_SUFFIXES, *(ext.lstrip(".") for ext in (table.pyext if table else ()))}
    files = []
    for path in desk.tree.walk(root) if desk.tree.is_dir(root) else ():
        target = posixpath.relpath(path, root)
        if PurePosixPath(path).suffix.lstrip(".") in suffixes and target != GENERATED_OPS:
            files.append(PackagedFile(path, target))
    return tuple(files)
