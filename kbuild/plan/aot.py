"""The kernels in Python DSLs: what each is compiled for, and by whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbuild.ops.language import LANGUAGES, flavour_of
from kbuild.ops.unit import CPU_TARGET, ImageTarget
from kbuild.plan.context import TABLES, PlanningContext
from kbuild.plan.plan import AotKernel
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.issue import Issue
from kbuild.project.config.load import config_error, locate_issues
from kbuild.sources.includes import scan_file
from kbuild.system.errors import ConfigError


def aot_kernels(desk: PlanningContext) -> tuple[tuple[AotKernel, ...], tuple[str, ...]]:
    """The variant's kernels in DSLs, and one sentence per arch or kernel that is left out.

    Raises:
        ConfigError: nothing that a kernel asks for can be compiled for.
    """
    kernels: list[AotKernel] = []
    notes: list[str] = []
    for name, section in desk.project.dsl_kernels_for(desk.backend.name).items():
        targets, own_notes = _targets(desk, name, section)
        notes += [f"kernel.{name}: {note}" for note in own_notes]
        if targets:
            own, more = _kernels(desk, name, section, targets)
            kernels += own
            notes += [f"kernel.{name}: {note}" for note in more]
        else:
            notes.append(f"kernel.{name} is left out: it has no code for {', '.join(desk.archs)}")
    if not kernels and not desk.project.kernels_for(desk.backend.name):
        message = f"has no code for {', '.join(desk.archs)} (variant {desk.choice.variant})"
        issues = [Issue(("kernel", name), message) for name in desk.project.dsl_kernels]
        raise ConfigError(locate_issues(issues, desk.tree))
    return tuple(kernels), tuple(notes)


def announced_archs(kernels: Iterable[AotKernel]) -> set[str]:
    """The archs of the images as `metadata.json` writes them: `9.0a`, `8.0+PTX`, `gfx942`."""
    targets = {ImageTarget.parse(text) for kernel in kernels for text in kernel.targets}
    ptx = {target.arch for target in targets if target.kind == "ptx"}
    targets.discard(CPU_TARGET)
    return {_announced(target, has_ptx=target.arch in ptx) for target in targets}


def _announced(target: ImageTarget, *, has_ptx: bool) -> str:
    capability = target.capability
    return target.arch if capability is None else f"{capability}{'+PTX' if has_ptx else ''}"


def _kernels(
    desk: PlanningContext, name: str, section: LanguageSection, targets: Sequence[ImageTarget]
) -> tuple[list[AotKernel], list[str]]:
    """The kernel with its own ops, those of its captured launches, and what to say of these."""
    kernel = _kernel(desk, name, targets)
    kernels = [kernel] if section.op else []
    notes: list[str] = []
    if any(capture.launches for capture in section.capture):
        from kbuild.plan.captured import captured_kernels, stale_functions

        kernels += captured_kernels(desk, kernel, section)
        notes += stale_functions(desk.tree, name, section)
    if any(capture.function for capture in section.capture):
        from kbuild.plan.captured import stale_wrappers, wrapped_kernels

        kernels += wrapped_kernels(desk, kernel, section)
        notes += stale_wrappers(desk.tree, name, section)
    return kernels, notes


def _kernel(desk: PlanningContext, name: str, targets: Sequence[ImageTarget]) -> AotKernel:
    return AotKernel(
        section=desk.project.dsl_sections[name],
        targets=tuple(map(str, targets)),
        flavour=flavour_of(desk.backend.name, _toolkit(desk)),
        tables=_tables(desk),
    )


def _toolkit(desk: PlanningContext) -> str | None:
    """The variant's own release: no device compiler of this machine has a part in it."""
    release = desk.choice.variant.backend_version
    return str(release) if release else None


def _tables(desk: PlanningContext) -> tuple[str, ...]:
    if not desk.tree.is_dir(TABLES):
        return ()
    return tuple(path for path in desk.tree.walk(TABLES) if path.endswith(".json"))


def _targets(
    desk: PlanningContext, name: str, section: LanguageSection
) -> tuple[tuple[ImageTarget, ...], tuple[str, ...]]:
    """The section's targets, or those of them that the user asks for; none when none is left."""
    language, key = LANGUAGES.get(section.language), desk.backend.arch_key
    requested = section.archs_of(key) if key else None
    asked = desk.archs if requested is None and desk.archs else requested
    resolved = language.targets(desk.backend.name, asked, _toolkit(desk), section.pins)
    if not resolved.targets:
        reasons = "; ".join(resolved.notes) or "it names no arch"
        message = f"nothing is left to compile for: {reasons} (variant {desk.choice.variant})"
        raise config_error(desk.tree, ("kernel", name), message)
    if not desk.archs or requested is None:
        return resolved.targets, resolved.notes
    kept = tuple(target for target in resolved.targets if _serves(desk, target))
    return kept, resolved.notes


def _serves(desk: PlanningContext, target: ImageTarget) -> bool:
    arch = _announced(target, has_ptx=target.kind == "ptx")
    return any(desk.backend.arch_serves(arch, wanted) for wanted in desk.archs)


def sees_device_headers(
    desk: PlanningContext, sources: Iterable[str], folders: Sequence[str]
) -> bool:
    """True when C++ sources include headers of a toolkit, by the names that these have."""
    names = {
        include.name.lower()
        for path in desk.includes.reachable(sources, folders)
        for include in scan_file(desk.tree, path).includes
    }
    return any(word in name for name in names for word in desk.backend.toolkit_headers)
