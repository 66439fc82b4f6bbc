"""From the kernels of a plan that are written in DSLs to sources: launchers with images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kbuild.config.issue import Issue
from kbuild.config.load import located
from kbuild.errors import ConfigError
from kbuild.fileset import FileSet
from kbuild.languages.base import LANGUAGES, Function
from kbuild.languages.compiled import Compiled
from kbuild.languages.description import FILE as DESCRIPTION
from kbuild.languages.description import DescribedKernel, Description
from kbuild.languages.launcher import LaunchedLaunch, LaunchedOp, launcher, linked_file
from kbuild.languages.package import FOLDER, package_files
from kbuild.languages.shipped import shipped
from kbuild.languages.spec import Bound, Launch, OpSpec, bind, read_section
from kbuild.languages.spec.keep import with_candidates
from kbuild.languages.spec.place import Place
from kbuild.languages.tablefile import read_tables
from kbuild.languages.tables import Table
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit
from kbuild.plan import AotKernel, VariantPlan
from kbuild.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.languages.workshop import Tell, Workshop


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


@dataclass(frozen=True)
class _Joined:
    """A launch with the function that it names."""

    launch: Launch
    """With its real candidates, also where these are the kernel's own."""
    bound: Bound


def produce(plan: VariantPlan, root: Path, workshop: Workshop, tell: Tell) -> Produced:
    """Compile what the plan's kernels in DSLs need, and generate what launches it.

    Args:
        plan: of one variant.
        root: the project.
        workshop: compiles, and remembers what it compiled.
        tell: told of each unit.

    Raises:
        ConfigError: a section does not fit its functions, or a tuned table is broken.
        BuildError: a unit did not compile.
        IncompleteError: the time was over before everything was compiled.
    """
    issues: list[Issue] = []
    joined = [(kernel, *_joined(kernel, root, workshop, issues)) for kernel in plan.aot]
    _refuse(issues, root)
    files, compiled = FileSet(), []
    has_module = any(source for part in plan.components for source in part.compiled)
    for position, (kernel, ops, launches) in enumerate(joined):
        tables = read_tables(root, kernel.tables)
        made = _compiled(kernel, root, workshop, tell, _wanted(kernel, ops, launches, tables))
        launched = tuple(_launched(op, launches, made) for op in ops)
        module = position == 0 and not has_module
        text = launcher(kernel.name, launched, tables, module=module, control=kernel.keep_all)
        files = files.merge(text).merge(_libraries(kernel, made, workshop))
        compiled.append((kernel, made))
    specs = [(op, _functions(op, launches)) for _, ops, launches in joined for op in ops]
    files = files.merge(package_files(specs, root))
    if any(kernel.keep_all for kernel in plan.aot):
        description = _description(plan, joined, tuple(compiled))
        files.add(f"{FOLDER}/{DESCRIPTION}", description.text())
    return Produced(files, tuple(compiled))


def _description(
    plan: VariantPlan,
    joined: Sequence[tuple[AotKernel, tuple[OpSpec, ...], Mapping[tuple[str, int], _Joined]]],
    compiled: Images,
) -> Description:
    """What `kbuild tune` is told of the variant."""
    kernels = [
        DescribedKernel(
            kernel.name,
            kernel.section,
            tuple(
                launches[op.name, index].launch.candidates
                for op in ops
                for index in range(len(op.launches))
            ),
        )
        for kernel, ops, launches in joined
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


def _functions(
    op: OpSpec, launches: Mapping[tuple[str, int], _Joined]
) -> list[tuple[Launch, Bound]]:
    found = (launches[op.name, index] for index in range(len(op.launches)))
    return [(one.launch, one.bound) for one in found]


def _joined(
    kernel: AotKernel, root: Path, workshop: Workshop, issues: list[Issue]
) -> tuple[tuple[OpSpec, ...], Mapping[tuple[str, int], _Joined]]:
    """The section's ops, and by op and index every launch with its function; errors in `issues`."""
    reading = read_section(kernel.name, kernel.section)
    issues += reading.issues
    functions = workshop.describe(kernel, root)
    place, found = Place(("kernel", kernel.name), issues), {}
    language = LANGUAGES.get(kernel.language)
    completed = (language.complete(op, functions, place) for op in reading.ops)
    ops = tuple(op for op in completed if op is not None)
    for op in ops:
        for index, launch in enumerate(op.launches):
            one = _join(op, launch, functions, place)
            if one is not None:
                found[op.name, index] = one
    return ops, found


def _join(
    op: OpSpec, launch: Launch, functions: Mapping[str, Function], outer: Place
) -> _Joined | None:
    place = Place(launch.path, outer.issues)
    function = next((functions[name] for name in launch.functions if name in functions), None)
    whole = with_candidates(op, launch, function.candidates, place) if function else launch
    if whole is None:
        return None
    known = {name: one.parameters for name, one in functions.items()}
    bound = bind(op, whole, known, place)
    return None if bound is None else _Joined(whole, bound)


def _refuse(issues: Sequence[Issue], root: Path) -> None:
    if any(issue.severity == "error" for issue in issues):
        raise ConfigError(located(issues, SourceTree(root)))


def _wanted(
    kernel: AotKernel,
    ops: Sequence[OpSpec],
    launches: Mapping[tuple[str, int], _Joined],
    tables: Sequence[Table],
) -> Iterator[tuple[Unit, Bound]]:
    """Every unit once, in the order of the section, with the function that it compiles."""
    targets = tuple(map(Target.parse, kernel.targets))
    language, seen = LANGUAGES.get(kernel.language), set[str]()
    for op in ops:
        for target in targets:
            reduced = replace(
                op,
                launches=tuple(
                    _shipped(kernel, op, index, launches[op.name, index], tables, target, targets)
                    for index in range(len(op.launches))
                ),
            )
            for unit in language.expand(reduced, (target,)):
                text = repr(unit)
                if text not in seen:
                    seen.add(text)
                    yield unit, launches[op.name, unit.launch].bound


def _shipped(  # noqa: PLR0917
    kernel: AotKernel,
    op: OpSpec,
    index: int,
    joined: _Joined,
    tables: Sequence[Table],
    target: Target,
    targets: Sequence[Target],
) -> Launch:
    candidates = shipped(
        joined.launch,
        tables,
        kernel.name,
        op.name,
        index,
        target,
        among=targets,
        keep_all=kernel.keep_all,
    )
    return replace(joined.launch, candidates=candidates, autotune=False)


def _compiled(
    kernel: AotKernel,
    root: Path,
    workshop: Workshop,
    tell: Tell,
    wanted: Iterator[tuple[Unit, Bound]],
) -> tuple[Compiled, ...]:
    made = workshop.compile(kernel, root, tuple(wanted), tell)
    for one in made:
        LANGUAGES.get(kernel.language).judge(one.image, kernel.toolchain)
    return made


def _libraries(kernel: AotKernel, made: Sequence[Compiled], workshop: Workshop) -> FileSet:
    """What the kernel's objects are linked with, as CMake reads it."""
    if not any(one.image.kind == "object" for one in made):
        return FileSet()
    place = workshop.prepare(kernel)
    linked = place.language.linked(place.root, kernel.toolchain, kernel.flavour)
    return linked_file(kernel.name, linked)


def _launched(
    op: OpSpec, launches: Mapping[tuple[str, int], _Joined], made: Sequence[Compiled]
) -> LaunchedOp:
    found = []
    for index in range(len(op.launches)):
        one = launches[op.name, index]
        own = tuple(each for each in made if (each.unit.op, each.unit.launch) == (op.name, index))
        found.append(LaunchedLaunch(one.launch, one.bound, own))
    return LaunchedOp(op, tuple(found))
