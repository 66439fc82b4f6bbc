"""Builds the DSL kernels of a plan: compiles their images and generates launchers for them.

Warns about results that are read before they are written, register spills and untuned kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.dsl.candidates import CandidateSelector, closest_target, image_count_warning
from kbuild.dsl.image_cache import NoteCallback, compiled_images
from kbuild.dsl.image_rows import Images, resources_of
from kbuild.dsl.launcher.files import launcher_files
from kbuild.dsl.launcher.objects import link_libraries_file
from kbuild.dsl.launcher.resolved_kernel import ResolvedKernel, ResolvedLaunch, is_compiled_for
from kbuild.dsl.python_package import PYTHON_FOLDER, package_files
from kbuild.dsl.resolve import resolve_kernel
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES
from kbuild.ops.manifest import MANIFEST_FILE as DESCRIPTION
from kbuild.ops.manifest import ManifestKernel, OpManifest
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate
from kbuild.ops.tuned_tables import TunedRow, TunedTable, read_tables
from kbuild.ops.unit import ImageTarget
from kbuild.plan.plan import AotKernel, VariantPlan
from kbuild.project.config.issue import Issue
from kbuild.project.config.load import locate_issues
from kbuild.project.variant import Variant
from kbuild.system.errors import BuildError, ConfigError
from kbuild.system.executor import IMAGES
from kbuild.system.files import FileSet
from kbuild.system.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.dsl.aot_compiler import AotCompiler, UnitProgressCallback


def memory_warnings(kernel: ResolvedKernel) -> Iterator[str]:
    """Yield a warning for each allocated tensor that a compiled kernel reads before writing it.

    Raises:
        BuildError: a function does nothing but add to such a tensor: its memory is not initialised.
    """
    for op in kernel.ops:
        for index, launch in enumerate(op.launches):
            adds = {name for each in launch.compiled for name in each.image.adds}
            reads = {name for each in launch.compiled for name in each.image.reads}
            earlier = [before.bound for before in op.launches[:index]]
            head = f"kernel.{kernel.kernel.name}: `{launch.bound.function}`"
            for name, what in _uninitialised_tensors(op.spec, launch.bound, earlier, sorted(adds)):
                message = f"{head} adds to {what} `{name}`, which is not initialised"
                hint = f'write `zero = ["{name}"]` in the op, or `fill` with another value'
                raise BuildError(message, hint=hint)
            for name, what in _uninitialised_tensors(op.spec, launch.bound, earlier, sorted(reads)):
                yield (
                    f"{head} reads {what} `{name}` before it writes it, and the memory is not "
                    f'initialised; `zero = ["{name}"]` initialises it'
                )


def _uninitialised_tensors(
    op: OpSpec, bound: BoundLaunch, earlier: Sequence[BoundLaunch], parameters: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield name and kind of the allocated tensors among `parameters` that are not initialised."""
    # ATen calls before this launch may have written to the tensor.
    calls = [call for call in op.aten if call.before <= len(earlier)]
    written = {op.viewed(name) for call in calls for name in (*call.tensors(), *call.produced)}
    written |= {op.viewed(source.name) for before in earlier for _, source in before.flat()}
    written |= {name for name, _ in op.fills}
    for parameter in parameters:
        try:
            source = bound.source(parameter)
        except KeyError:
            continue
        name = op.viewed(source.name)
        if source.kind not in ("tensor", "descriptor") or name in written:
            continue
        if name in op.results:
            yield name, "the result"
        elif name in op.temporaries:
            yield name, "the temporary"


def default_candidate_warnings(
    kernel: ResolvedKernel, tables: Sequence[TunedTable]
) -> Iterator[str]:
    """Yield a warning for each default candidate that spills, and for kernels never tuned.

    A candidate that a tuned table names is not reported: it was measured and is the fastest.
    """
    if kernel.kernel.keep_all:
        return
    targets = tuple(map(ImageTarget.parse, kernel.kernel.targets))
    for op in kernel.ops:
        for index, launch in enumerate(op.launches):
            head = f"kernel.{kernel.kernel.name}: `{launch.bound.function}`"
            untuned: dict[str, str] = {}
            for target in targets:
                near = (t for t in tables if closest_target(t.arch, targets) == target)
                rows = [row for t in near for row in t.of(kernel.kernel.name, op.spec.name, index)]
                images = [each for each in launch.compiled if each.unit.target == target]
                yield from _spill_warning(head, launch, images, rows)
                if launch.launch.autotune and not rows and images:
                    untuned[str(target)] = _first_shipped(launch, images)
            count, shipped = len(launch.launch.candidates), {*untuned.values()}
            if untuned and count > 1:
                which = shipped.pop() if len(shipped) == 1 else "the first one that fits"
                what = f"{count} candidates and was not tuned for {', '.join(untuned)}"
                yield f"{head} has {what}: {which} is used; run `kbuild tune` to measure them"


def _first_shipped(launch: ResolvedLaunch, images: Sequence[UnitImage]) -> str:
    """The candidate that ships, for a message."""
    for candidate in launch.launch.candidates:
        if any(is_compiled_for(candidate, image.unit) for image in images):
            return f"the first ({_candidate_text(candidate)})"
    return "the first"


def _spill_warning(
    head: str, launch: ResolvedLaunch, images: Sequence[UnitImage], rows: Sequence[TunedRow]
) -> Iterator[str]:
    for candidate in launch.launch.candidates:
        candidate_images = [image for image in images if is_compiled_for(candidate, image.unit)]
        if not candidate_images or any(row.names(candidate) for row in rows):
            continue
        worst = max(candidate_images, key=_is_spilled)
        if _is_spilled(worst) > 0:
            label = _candidate_text(candidate)
            which = f"the default candidate{f' ({label})' if label else ''}"
            what = f"{head}: {which} for {worst.unit.target} {_spill_text(worst)}"
            yield f"{what}; list a smaller one first, or run `kbuild tune`"


def _is_spilled(unit_image: UnitImage) -> int:
    """Amount that was spilled: registers or bytes, see `_spill_text`; 0 when nothing was."""
    # Compilers of objects do not report spills; local memory, which the cubin records, is similar.
    if unit_image.image.spills is not None or unit_image.image.kind != "object":
        return unit_image.image.spills or 0
    return resources_of(unit_image).local or 0


def _spill_text(unit_image: UnitImage) -> str:
    registers = resources_of(unit_image).registers
    used = f", with {registers} registers per thread" if registers else ""
    if unit_image.image.kind == "object":
        local = _is_spilled(unit_image)
        return f"spills {local:,} bytes per thread to local memory{used}"
    unit = "registers" if unit_image.image.target.is_amd else "bytes of registers"
    return f"spills {_is_spilled(unit_image):,} {unit}{used}"


def _candidate_text(candidate: Candidate) -> str:
    return " ".join(f"{name}={value}" for name, value in (*candidate.constants, *candidate.options))


_MAX_SHOWN = 8
"""Number of left-out images that are named one by one in warnings."""


@dataclass(frozen=True)
class AotOutput:
    """Generated files and compiled images of a plan's DSL kernels."""

    files: FileSet
    compiled: Images

    def python(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the Python package: path in the variant directory, and content."""
        for path, data in self.files.items():
            if path.startswith(f"{PYTHON_FOLDER}/"):
                yield path.removeprefix(f"{PYTHON_FOLDER}/"), data


def build_aot_kernels(
    plan: VariantPlan,
    root: Path,
    compiler: AotCompiler,
    tell: UnitProgressCallback,
    note: NoteCallback = lambda _: None,
) -> AotOutput:
    """Compile the plan's DSL kernels and generate their launchers.

    `tell` is called for each unit; `note` gets a sentence for each image that is left out and
    for each part of a source that was not followed, once in the life of the compiler.

    Raises:
        ConfigError: a section does not fit its functions, or a tuned table is broken.
        BuildError: a unit did not compile, or a launch is left with no image.
        IncompleteError: the time was over before everything was compiled.
    """
    issues: list[Issue] = []
    sections = [resolve_kernel(kernel, root, compiler, issues) for kernel in plan.aot]
    # Once all sections are resolved, so that one error lists the problems of all.
    if any(issue.severity == "error" for issue in issues):
        raise ConfigError(locate_issues(issues, SourceTree(root)))
    files, compiled = FileSet(), []
    framework = FRAMEWORKS.get(plan.framework).table
    has_module = any(source for part in plan.components for source in part.compiled)
    selectors = [
        CandidateSelector(each, read_tables(root, each.kernel.tables)) for each in sections
    ]
    _announce_many(selectors, compiler, note)
    for position, selector in enumerate(selectors):
        section, tables = selector.section, selector.tables
        kernel = section.kernel
        unit_images, messages = _compile_kernel(selector, root, compiler, tell, plan.variant)
        ready = section.compiled(unit_images)
        messages += (*memory_warnings(ready), *default_candidate_warnings(ready, tables))
        # Several variants share the compiler, and their messages are often the same.
        for message in (*messages, *_launches_without_images(ready)):
            if compiler.is_news(message):
                note(message)
        # One of the generated files defines the extension module, unless a C++ binding does.
        keys = {"control": kernel.keep_all, "module": position == 0 and not has_module}
        text = launcher_files(kernel.name, ready.ops, tables, framework=framework, **keys)
        files = files.merge(text).merge(_libraries(plan, kernel, unit_images, compiler))
        compiled.append((kernel, unit_images))
    ops = [op for section in sections for op in section.ops]
    specs = [(op.spec, [(each.launch, each.bound) for each in op.launches]) for op in ops]
    control = any(kernel.keep_all for kernel in plan.aot)
    modules = plan.op_modules
    files = files.merge(package_files(specs, root, framework, control=control, modules=modules))
    for file in plan.generated:
        data = (root / file.source).read_bytes() if file.source else file.text
        files.add(f"{PYTHON_FOLDER}/{file.target}", data)
    if control:
        description = _description(plan, sections, tuple(compiled))
        files.add(f"{PYTHON_FOLDER}/{DESCRIPTION}", description.text())
    return AotOutput(files, tuple(compiled))


def _announce_many(
    selectors: Sequence[CandidateSelector], compiler: AotCompiler, note: NoteCallback
) -> None:
    """Note that very many images will be compiled, and why; tuning asks for them."""
    sections = [
        (each.section.kernel.name, each.section.specs, [unit for unit, _ in each.wanted()])
        for each in selectors
        if not each.section.kernel.keep_all
    ]
    many = image_count_warning(sections)
    if many and compiler.is_news(many):
        note(many)


def _compile_kernel(
    selector: CandidateSelector,
    root: Path,
    compiler: AotCompiler,
    tell: UnitProgressCallback,
    variant: str,
) -> tuple[tuple[UnitImage, ...], list[str]]:
    """Return the kernel's images, and sentences about what was left out."""
    section, kernel = selector.section, selector.section.kernel

    def tell_image(done: int, total: int, label: str) -> None:
        tell(done, total, f"{IMAGES}{kernel.name}: {label}")

    outcomes, missing = selector.compile(
        lambda wanted: compiler.outcomes(kernel, root, wanted, tell_image, variant)
    )
    left_out: list[str] = []
    unit_images = compiled_images(kernel.name, outcomes, left_out.append)
    for unit_image in unit_images:
        LANGUAGES.get(kernel.language).validate_image(unit_image.image, kernel.toolchain)
    reasons = list(dict.fromkeys(left_out))
    messages, more = [*section.notes, *reasons[:_MAX_SHOWN]], len(reasons) - _MAX_SHOWN
    if more > 0:
        what = f"{more} more images are left out for the same reason"
        messages.append(f"kernel.{kernel.name}: {what}")
    return unit_images, [*messages, *missing]


def _description(
    plan: VariantPlan, sections: Sequence[ResolvedKernel], compiled: Images
) -> OpManifest:
    """Describe the variant for `kbuild tune`: ops, candidates, compilers, digest of the code."""
    kernels = [
        ManifestKernel(
            section.kernel.section,
            tuple(launch.launch.candidates for op in section.ops for launch in op.launches),
            tuple(tuple(map(str, op.key)) for op in section.specs),
            tuple((op.name, op.tune.proposals) for op in section.specs if op.tune.proposals),
            tuple((op.name, op.tune.resets) for op in section.specs if op.tune.resets),
        )
        for section in sections
    ]
    versions: dict[str, str] = {}
    images = hashlib.sha256()
    for unit_image in (image for _, unit_images in compiled for image in unit_images):
        versions |= unit_image.image.compiler
        # Of the digests, since a digest of the joined codes would not show where one ends.
        images.update(hashlib.sha256(unit_image.code).digest())
    compilers = tuple(sorted(versions.items()))
    return OpManifest(plan.ops_name, tuple(kernels), compilers, images.hexdigest())


def _libraries(
    plan: VariantPlan, kernel: AotKernel, unit_images: Sequence[UnitImage], compiler: AotCompiler
) -> FileSet:
    """CMake file with the libraries that the kernel's objects are linked with, if any."""
    if not any(unit_image.image.kind == "object" for unit_image in unit_images):
        return FileSet()
    place = compiler.prepare(kernel)
    linked = place.language.linked(place.root, kernel.toolchain, place.flavour)
    release = Variant.parse(plan.variant).backend_version if linked.hip else None
    return link_libraries_file(kernel.name, linked, release.major if release else None)


def _launches_without_images(kernel: ResolvedKernel) -> Iterator[str]:
    """Yield a note for each launch without images: its conditions exclude this build's archs.

    Raises:
        BuildError: an op has no other launches.
    """
    for op in kernel.ops:
        name = f"kernel.{kernel.kernel.name}: `{op.spec.name}`"
        if not any(launch.compiled for launch in op.launches):
            targets = ", ".join(kernel.kernel.targets)
            message = f"{name} has no image: none of its launches is for {targets}"
            hint = "build for other archs, or change its `when` and `archs`"
            raise BuildError(message, hint=hint)
        for launch in op.launches:
            if not launch.compiled:
                yield f"{name} gets no image of `{launch.bound.function}`: it is for other archs"
