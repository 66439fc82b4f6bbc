"""From the kernels of a plan that are written in DSLs to sources: launchers with images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kbuild.config.issue import Issue
from kbuild.config.load import located
from kbuild.errors import BuildError, ConfigError
from kbuild.fileset import FileSet
from kbuild.frameworks import FRAMEWORKS
from kbuild.languages.base import LANGUAGES
from kbuild.languages.chosen import Choosing
from kbuild.languages.compiled import Compiled
from kbuild.languages.description import FILE as DESCRIPTION
from kbuild.languages.description import DescribedKernel, Description
from kbuild.languages.fitting import Note, fitting
from kbuild.languages.joined import Joined, Section, joined
from kbuild.languages.judged import judge_defaults, judge_memory
from kbuild.languages.launcher import LaunchedLaunch, LaunchedOp, launcher, linked_file
from kbuild.languages.package import FOLDER, package_files
from kbuild.languages.spec import Bound, Launch, OpSpec
from kbuild.languages.tablefile import read_tables
from kbuild.languages.tables import Table
from kbuild.plan import AotKernel, VariantPlan
from kbuild.sourcetree import SourceTree
from kbuild.variant import Variant

if TYPE_CHECKING:
    from kbuild.languages.progress import Tell
    from kbuild.languages.workshop import Workshop


_SHOWN = 8
"""Images left out that are named one by one."""

Images: TypeAlias = "tuple[tuple[AotKernel, tuple[Compiled, ...]], ...]"
"""Every kernel with its images."""


@dataclass(frozen=True)
class Produced:
    """What the kernels of one plan come to."""

    files: FileSet
    compiled: Images

    def python(self) -> Iterator[tuple[str, bytes]]:
        """What goes into the package: path relative to the variant directory, and content."""
        for path, data in self.files.items():
            if path.startswith(f"{FOLDER}/"):
                yield path.removeprefix(f"{FOLDER}/"), data


def produce(
    plan: VariantPlan,
    root: Path,
    workshop: Workshop,
    tell: Tell,
    note: Note = lambda _: None,
) -> Produced:
    """Compile what the plan's kernels in DSLs need, and generate what launches it.

    Args:
        plan: of one variant.
        root: the project.
        workshop: compiles, and remembers what it compiled.
        tell: told of each unit.
        note: told what is left out and what of a kernel's own words was not followed, each once in
            the life of the workshop.

    Raises:
        ConfigError: a section does not fit its functions, or a tuned table is broken.
        BuildError: a unit did not compile, or a launch is left with no image.
        IncompleteError: the time was over before everything was compiled.
    """
    issues: list[Issue] = []
    sections = [joined(kernel, root, workshop, issues) for kernel in plan.aot]
    _refuse(issues, root)
    files, compiled = FileSet(), []
    framework = FRAMEWORKS.get(plan.framework).table
    has_module = any(source for part in plan.components for source in part.compiled)
    for position, section in enumerate(sections):
        kernel = section.kernel
        tables = read_tables(root, kernel.tables)
        made = _compiled(section, root, workshop, tell, tables, note, plan.variant)
        launched = tuple(_launched(op, section.of(op), made) for op in section.ops)
        for words in _empty(kernel, launched):
            if workshop.is_news(words):
                note(words)
        module = position == 0 and not has_module
        text = launcher(
            kernel.name,
            launched,
            tables,
            module=module,
            control=kernel.keep_all,
            framework=framework,
        )
        files = files.merge(text).merge(_libraries(plan, kernel, made, workshop))
        compiled.append((kernel, made))
    specs = [(op, _functions(section.of(op))) for section in sections for op in section.ops]
    control = any(kernel.keep_all for kernel in plan.aot)
    files = files.merge(package_files(specs, root, framework, control=control))
    if control:
        description = _description(plan, sections, tuple(compiled))
        files.add(f"{FOLDER}/{DESCRIPTION}", description.text())
    return Produced(files, tuple(compiled))


def _compiled(  # noqa: PLR0917
    section: Section,
    root: Path,
    workshop: Workshop,
    tell: Tell,
    tables: Sequence[Table],
    note: Note,
    variant: str,
) -> tuple[Compiled, ...]:
    kernel = section.kernel
    choosing = Choosing(section, tables)
    outcomes, missing = choosing.made(
        lambda wanted: workshop.outcomes(kernel, root, wanted, tell, variant)
    )
    left_out: list[str] = []
    found = fitting(kernel.name, outcomes, left_out.append)
    for one in found:
        LANGUAGES.get(kernel.language).judge(one.image, kernel.toolchain)
    few = _few(kernel.name, tuple(dict.fromkeys(left_out)))
    shown = (*judge_memory(section, found), *judge_defaults(section, found, tables))
    for words in (*section.notes, *few, *missing, *shown):
        if workshop.is_news(words):
            note(words)
    return found


def _few(kernel: str, notes: Sequence[str]) -> Iterator[str]:
    yield from notes[:_SHOWN]
    if notes[_SHOWN:]:
        yield f"kernel.{kernel}: {len(notes) - _SHOWN} more images are left out for the same reason"


def _description(plan: VariantPlan, sections: Sequence[Section], compiled: Images) -> Description:
    """What `kbuild tune` is told of the variant."""
    kernels = [
        DescribedKernel(
            one.kernel.name,
            one.kernel.section,
            tuple(launch.launch.candidates for op in one.ops for launch in one.of(op)),
            tuple(tuple(map(str, op.key)) for op in one.ops),
            tuple((op.name, op.tune.proposals) for op in one.ops if op.tune.proposals),
            tuple((op.name, op.tune.resets) for op in one.ops if op.tune.resets),
        )
        for one in sections
    ]
    versions = {
        name: version
        for _, made in compiled
        for one in made
        for name, version in one.image.compiler.items()
    }
    images = hashlib.sha256()
    for _, made in compiled:
        for one in made:
            images.update(hashlib.sha256(one.code).digest())
    found = tuple(sorted(versions.items()))
    return Description(plan.ops_name, tuple(kernels), found, images.hexdigest())


def _functions(launches: Sequence[Joined]) -> list[tuple[Launch, Bound]]:
    return [(one.launch, one.bound) for one in launches]


def _refuse(issues: Sequence[Issue], root: Path) -> None:
    if any(issue.severity == "error" for issue in issues):
        raise ConfigError(located(issues, SourceTree(root)))


def _libraries(
    plan: VariantPlan, kernel: AotKernel, made: Sequence[Compiled], workshop: Workshop
) -> FileSet:
    """What the kernel's objects are linked with, as CMake reads it."""
    if not any(one.image.kind == "object" for one in made):
        return FileSet()
    place = workshop.prepare(kernel)
    linked = place.language.linked(place.root, kernel.toolchain, kernel.flavour)
    release = Variant.parse(plan.variant).backend_version if linked.hip else None
    return linked_file(kernel.name, linked, hip=release.major if release is not None else None)


def _empty(kernel: AotKernel, ops: Sequence[LaunchedOp]) -> Iterator[str]:
    """A sentence for each launch that is for other devices than those of this build.

    Raises:
        BuildError: an op has no other launches.
    """
    for op in ops:
        name = f"kernel.{kernel.name}: `{op.spec.name}`"
        if not any(launch.compiled for launch in op.launches):
            words = f"{name} has no image: its launches are for none of {', '.join(kernel.targets)}"
            raise BuildError(words, hint="build for other archs, or change its `when` and `archs`")
        for launch in op.launches:
            if not launch.compiled:
                yield f"{name} gets no image of `{launch.bound.function}`: it is for other archs"


def _launched(op: OpSpec, launches: Sequence[Joined], made: Sequence[Compiled]) -> LaunchedOp:
    found = []
    for index, one in enumerate(launches):
        own = tuple(each for each in made if (each.unit.op, each.unit.launch) == (op.name, index))
        found.append(LaunchedLaunch(one.launch, one.bound, own))
    return LaunchedOp(op, tuple(found))
