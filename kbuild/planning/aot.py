"""The kernels in Python DSLs: what each is compiled for, and by whom."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from kbuild.capture.description import (
    read_declaration,
    read_description,
    staleness,
    wrapper_file,
)
from kbuild.config.file_model import LanguageSection
from kbuild.config.issue import dotted
from kbuild.errors import ConfigError, Problem
from kbuild.languages.base import LANGUAGES, flavour_of
from kbuild.languages.unit import CPU_TARGET, ImageTarget
from kbuild.ops.captured_launches import (
    CapturedFunction,
    captured_file,
    launch_ops,
    module_of,
    parse_captured,
)
from kbuild.ops.function_digests import SourceDigests
from kbuild.ops.model import IssueCollector
from kbuild.plan import AotKernel
from kbuild.planning.context import TABLES, PlanningContext
from kbuild.project import BUILD_FILE
from kbuild.sources.includes import scan_file
from kbuild.sourcetree import SourceTree


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
        notes += [f"kernel.{name}: {note}" for note in _stale_functions(desk.tree, name, section)]
        if targets:
            kernels += _kernels(desk, name, section, targets)
        else:
            notes.append(f"kernel.{name} is left out: it has no code for {', '.join(desk.archs)}")
    if not kernels and not desk.project.kernels_for(desk.backend.name):
        named = ", ".join(f"kernel.{name}" for name in desk.project.dsl_kernels)
        message = f"has no code for {', '.join(desk.archs)} (variant {desk.choice.variant})"
        raise ConfigError([Problem(BUILD_FILE, 0, named, message)])
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
) -> Iterator[AotKernel]:
    """The kernel with its own ops, and one for each source whose launches are captured."""
    kernel = _kernel(desk, name, section, targets)
    if section.op:
        yield kernel
    yield from _wrappers(desk, kernel, section)
    if not any(capture.launches for capture in section.capture):
        return
    if LANGUAGES.get(section.language).launch_runtime is None:
        message = f"launches of `{section.language}` kernels cannot be captured"
        where = f"kernel.{name}.capture"
        raise ConfigError([Problem(BUILD_FILE, 0, where, message, "describe the ops in `op`")])
    if desk.framework.table != "torch":
        message = "only packages for Torch launch kernels from an author's Python"
        where = f"kernel.{name}.capture"
        raise ConfigError([Problem(BUILD_FILE, 0, where, message, "use `[torch]`")])
    own = {key: value for key, value in kernel.section.items() if key not in {"op", "capture"}}
    texts = SourceDigests({path: desk.tree.read_text(path) for path in kernel.sources})
    for number, ops in enumerate(launch_ops(name, captured_functions(desk.tree, name, section))):
        sources = texts.imported(ops.source)
        yield replace(
            kernel,
            name=name if number == 0 and not section.op else f"{name}_launches_{number}",
            sources=sources,
            section={**own, "src": list(sources), "op": list(ops.ops)},
            captured={
                "sources": kernel.sources,
                "functions": ops.functions,
                "jit": any(capture.fallback == "jit" for capture in section.capture),
            },
        )


def _wrappers(
    desk: PlanningContext, kernel: AotKernel, section: LanguageSection
) -> Iterator[AotKernel]:
    """A kernel for each function that is captured whole.

    Raises:
        ConfigError: it was not captured, or from another source or declaration.
    """
    texts = SourceDigests({path: desk.tree.read_text(path) for path in kernel.sources})
    own = {key: value for key, value in kernel.section.items() if key not in {"op", "capture"}}
    for index, table in enumerate(section.capture):
        if table.function is None:
            continue
        place = IssueCollector(("kernel", kernel.name, "capture", index))
        declaration = read_declaration(kernel.section["capture"][index], place.path, place)
        if declaration is None:
            raise ConfigError(
                [Problem(BUILD_FILE, 0, dotted(i.path), i.message, i.hint) for i in place.issues]
            )
        file = wrapper_file(kernel.name, declaration.name)
        if not desk.tree.is_file(file):
            where = f"kernel.{kernel.name}.capture"
            message = f"`{declaration.function}` is not captured: `{file}` does not exist"
            raise ConfigError([Problem(BUILD_FILE, 0, where, message, "run `kbuild capture`")])
        data = read_description(desk.tree.read_text(file), file)
        sources = texts.imported(data["source"])
        yield replace(
            kernel,
            name=f"{kernel.name}_{declaration.name}",
            sources=sources,
            section={**own, "src": list(sources), "op": data["ops"]},
            wrappers=({key: value for key, value in data.items() if key != "ops"},),
        )


def _stale_functions(tree: SourceTree, name: str, section: LanguageSection) -> Iterator[str]:
    """A sentence for each kernel function that has changed since its launches were captured."""
    yield from _stale_wrappers(tree, name, section)
    if not any(capture.launches for capture in section.capture):
        return
    digests = SourceDigests({path: tree.read_text(path) for path in section.src})
    for function in captured_functions(tree, name, section):
        if digests.of(function.source, function.name) != function.digest:
            yield (
                f"`{function.name}` in {function.source} has changed since its launches were "
                "captured; `kbuild capture --check` lists such functions"
            )


def _stale_wrappers(tree: SourceTree, name: str, section: LanguageSection) -> Iterator[str]:
    written = section.as_written().get("capture", ())
    for index, table in enumerate(written):
        place = IssueCollector(("kernel", name, "capture", index))
        declaration = read_declaration(table, place.path, place) if table.get("function") else None
        file = wrapper_file(name, declaration.name) if declaration else ""
        if declaration is not None and tree.is_file(file):
            texts = {path: tree.read_text(path) for path in section.src}
            if reason := staleness(
                declaration, read_description(tree.read_text(file), file), texts
            ):
                yield f"{reason}; `kbuild capture` describes it anew"


def captured_functions(
    tree: SourceTree, name: str, section: LanguageSection
) -> tuple[CapturedFunction, ...]:
    """The kernel functions that the section captures at their launches.

    Raises:
        ConfigError: they were never recorded, or are of a file that `src` does not list.
    """
    file = captured_file(name)
    if not tree.is_file(file):
        message = f"kernel.{name} captures launches, and `{file}` does not exist"
        hint = "record them: `kbuild capture --record -- pytest tests`, on a GPU or interpreted"
        raise ConfigError([Problem(BUILD_FILE, 0, f"kernel.{name}.capture", message, hint)])
    patterns = [pattern for capture in section.capture for pattern in capture.launches]
    sources = {posixpath.normpath(path) for path in section.src}
    functions = []
    for function in parse_captured(tree.read_text(file), file).functions:
        if function.source not in sources:
            message = f"`{function.source}` is not in `src` of kernel.{name}"
            hint = "record the launches again: `kbuild capture --record -- COMMAND`"
            raise ConfigError([Problem(file, 0, "", message, hint)])
        if any(fnmatchcase(module_of(function.source), pattern) for pattern in patterns):
            functions.append(function)
    if not functions:
        message = f"`{file}` has no launches of {', '.join(patterns)}"
        raise ConfigError([Problem(BUILD_FILE, 0, f"kernel.{name}.capture", message)])
    return tuple(functions)


def _kernel(
    desk: PlanningContext, name: str, section: LanguageSection, targets: Sequence[ImageTarget]
) -> AotKernel:
    return AotKernel(
        name=name,
        language=section.language,
        toolchain=section.pins,
        sources=tuple(dict.fromkeys(posixpath.normpath(path) for path in section.src)),
        targets=tuple(map(str, targets)),
        flavour=flavour_of(desk.backend.name, _toolkit(desk)),
        section=section.as_written(),
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
        raise ConfigError([Problem(BUILD_FILE, 0, f"kernel.{name}", message)])
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
