"""The kernels in Python DSLs: what each is compiled for, and by whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kbuild.ops.language import LANGUAGES, flavour_of
from kbuild.ops.unit import CPU_TARGET, ImageTarget
from kbuild.plan.context import AotKernels, PlanningContext
from kbuild.plan.plan import AotKernel, GeneratedFile
from kbuild.project.config.document import TABLES_FOLDER
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.issue import Issue
from kbuild.project.config.load import config_error, locate_issues
from kbuild.project.variant import host_system
from kbuild.sources.includes import scan_file
from kbuild.system.errors import ConfigError


def aot_kernels(context: PlanningContext) -> AotKernels:
    """The variant's kernels in DSLs.

    Raises:
        ConfigError: nothing that a kernel asks for can be compiled for, or a plug-in cannot say
            what its ops are.
    """
    project = context.project
    kernels: list[AotKernel] = []
    notes: list[str] = []
    built: list[str] = []
    for name, section in project.dsl_kernels_for(context.backend.name).items():
        targets, own_notes = _targets(context, name, section)
        notes += [f"kernel.{name}: {note}" for note in own_notes]
        if not targets:
            archs = ", ".join(context.archs)
            notes.append(f"kernel.{name} is left out: it has no code for {archs}")
            continue
        readings = project.plugin_readings.values()
        errors = [issue for reading in readings for issue in reading.build_errors.get(name, ())]
        if errors:
            raise ConfigError(locate_issues(errors, context.tree))
        built.append(name)
        kernels += _kernels(context, name, targets)
    if not kernels and not project.cxx_kernels_for(context.backend.name):
        message = f"has no code for {', '.join(context.archs)} (variant {context.choice.variant})"
        issues = [Issue(("kernel", name), message) for name in project.dsl_kernels]
        raise ConfigError(locate_issues(issues, context.tree))
    return AotKernels(tuple(kernels), tuple(notes), *_plugin_files(context, built))


def _kernels(
    context: PlanningContext, name: str, targets: Sequence[ImageTarget]
) -> Iterator[AotKernel]:
    """The sections of a kernel that have ops.

    Raises:
        ConfigError: what a plug-in read is no op.
    """
    names = tuple(map(str, targets))
    flavour: str = flavour_of(context.backend.name, _toolkit(context))
    system = context.choice.variant.system
    language = LANGUAGES.get(context.project.dsl_kernels[name].language)
    if language.compiles_for_other_hosts and system not in (None, host_system()):
        flavour += f"-{system}"
    for section in context.project.dsl_sections[name]:
        if section.origin and section.errors:
            issue = section.errors[0]
            message = f"`{section.origin}` becomes an op that no build takes: {issue.message}"
            raise config_error(context.tree, ("kernel", name), message, issue.hint)
        if section.ops:
            yield AotKernel(section, names, flavour, _tables(context))


def _plugin_files(
    context: PlanningContext, kernels: Sequence[str]
) -> tuple[tuple[GeneratedFile, ...], tuple[str, ...]]:
    """The files that plug-ins add to the package, and the modules among them that register ops."""
    files: list[GeneratedFile] = []
    modules: list[str] = []
    folder = f"{context.framework.package_root}/{context.project.python_name}"
    for reading in context.project.plugin_readings.values():
        own = reading.package_files(kernels, context.framework.table, folder)
        files += [GeneratedFile(target, text=text) for target, text in own.texts.items()]
        files += [GeneratedFile(target, source=path) for target, path in own.sources.items()]
        modules += own.op_modules
    return tuple(files), tuple(modules)


def announced_archs(kernels: Iterable[AotKernel]) -> set[str]:
    """The archs of the images as `metadata.json` writes them: `9.0a`, `8.0+PTX`, `gfx942`."""
    targets = {ImageTarget.parse(text) for kernel in kernels for text in kernel.targets}
    ptx = {target.arch for target in targets if target.kind == "ptx"}
    # Code for the CPU has no arch to announce.
    targets.discard(CPU_TARGET)
    return {_announced(target, has_ptx=target.arch in ptx) for target in targets}


def _announced(target: ImageTarget, *, has_ptx: bool) -> str:
    capability = target.capability
    return target.arch if capability is None else f"{capability}{'+PTX' if has_ptx else ''}"


def _toolkit(context: PlanningContext) -> str | None:
    """The variant's own release: the device compiler of this machine plays no part."""
    release = context.choice.variant.backend_version
    return str(release) if release else None


def _tables(context: PlanningContext) -> tuple[str, ...]:
    if not context.tree.is_dir(TABLES_FOLDER):
        return ()
    return tuple(path for path in context.tree.walk(TABLES_FOLDER) if path.endswith(".json"))


def _targets(
    context: PlanningContext, name: str, section: LanguageSection
) -> tuple[tuple[ImageTarget, ...], tuple[str, ...]]:
    """The section's targets, or those of them that the user asks for; none when none is left."""
    language, key = LANGUAGES.get(section.language), context.backend.arch_key
    requested = section.archs_of(key) if key else None
    asked = context.archs if requested is None and context.archs else requested
    resolved = language.targets(context.backend.name, asked, _toolkit(context), section.pins)
    if not resolved.targets:
        reasons = "; ".join(resolved.notes) or "it names no arch"
        message = f"nothing is left to compile for: {reasons} (variant {context.choice.variant})"
        raise config_error(context.tree, ("kernel", name), message)
    if not context.archs or requested is None:
        return resolved.targets, resolved.notes
    kept = tuple(target for target in resolved.targets if _serves(context, target))
    return kept, resolved.notes


def _serves(context: PlanningContext, target: ImageTarget) -> bool:
    arch = _announced(target, has_ptx=target.kind == "ptx")
    return any(context.backend.arch_serves(arch, wanted) for wanted in context.archs)


def sees_device_headers(
    context: PlanningContext, sources: Iterable[str], folders: Sequence[str]
) -> bool:
    """True when C++ sources include headers of a toolkit, by the names that these have."""
    names = {
        include.name.lower()
        for path in context.includes.reachable(sources, folders)
        for include in scan_file(context.tree, path).includes
    }
    return any(word in name for name in names for word in context.backend.toolkit_headers)
