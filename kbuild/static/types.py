"""Type-checks a variant's C++ units with the host compiler.

The command, one cached result per unit, and the compiler's errors as findings.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.backends.base import TypeCheck
from kbuild.build.unit.cache import UnitCache
from kbuild.build.unit.command import CompileCommand
from kbuild.build.unit.inputs import UnitInputs
from kbuild.checks.base import Finding
from kbuild.frameworks import FRAMEWORKS
from kbuild.plan import BINDING, Component, VariantPlan
from kbuild.runtime.processes import Runner
from kbuild.runtime.unit_settings import LauncherSettings
from kbuild.static.includes import SourceVerdict

LANGUAGE = "CXX"
_JOINED = ("-D", "-U", "-I")
_SEPARATE = ("-D", "-U", "-I", "-isystem", "-include")
_RELEASE = "NDEBUG"
"""What CMake's build type defines."""
# Warnings are the real compiler's business: a plain one does not know the device's attributes.
_QUIET = ("-fsyntax-only", "-w")


@dataclass(frozen=True)
class IncludeFolders:
    """Where one variant's headers are."""

    project: Path
    generated: Path
    """The tree of files that kbuild writes, laid out as the project is."""
    stand_ins: Path
    """Searched last."""
    python: Path
    """Folder of `Python.h`; it need not exist."""
    libraries: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """By the name that `depends` has."""
    device: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """By the name that `TypeCheck.headers` has."""


def compiler_arguments(
    plan: VariantPlan, part: Component, check: TypeCheck, folders: IncludeFolders
) -> tuple[str, ...]:
    """The compiler's arguments for the component's C++ units, without source and outputs."""
    macros = (_RELEASE, *plan.definitions, *part.definitions, *check.definitions)
    return (
        f"-std=gnu++{plan.cxx_standard}",
        *_QUIET,
        *_prefix_maps(part, folders),
        *(f"-D{macro}" for macro in macros),
        *_project_includes(plan, part, folders),
        *_system_includes(part, folders),
        *_parsing_flags(dict(part.flags).get(LANGUAGE, ())),
    )


def _prefix_maps(part: Component, folders: IncludeFolders) -> Iterator[str]:
    """Names instead of places: what is remembered holds for every place."""
    named = {
        "kernel": folders.project,
        "generated": folders.generated,
        "stand-ins": folders.stand_ins,
        **{name: paths[0] for name, paths in _libraries(part, folders) if paths},
    }
    yield from (f"-ffile-prefix-map={folder}=/{name}" for name, folder in named.items())


def _project_includes(plan: VariantPlan, part: Component, folders: IncludeFolders) -> Iterator[str]:
    root = (FRAMEWORKS.get(plan.framework).package_root,) if part.name == BINDING else ()
    for name in dict.fromkeys((*root, *part.include)):
        yield f"-I{folders.project / name}"
        if (folders.generated / name).is_dir():
            yield f"-I{folders.generated / name}"


def _system_includes(part: Component, folders: IncludeFolders) -> Iterator[str]:
    libraries = [folder for _, paths in _libraries(part, folders) for folder in paths]
    for folder in (folders.python, *libraries, folders.stand_ins):
        yield from ("-isystem", str(folder))


def _libraries(part: Component, folders: IncludeFolders) -> Iterator[tuple[str, tuple[Path, ...]]]:
    yield from ((name, folders.libraries.get(name, ())) for name in part.depends)
    yield from folders.device.items()


def _parsing_flags(flags: Sequence[str]) -> Iterator[str]:
    """Of the plan's flags, those that decide what is parsed."""
    arguments = iter(flags)
    for argument in arguments:
        if argument in _SEPARATE:
            yield from (argument, next(arguments, ""))
        elif argument.startswith((*_JOINED, "-std=")):
            yield argument


_ERROR_MARK = "error: "
_KILLED = "Killed signal terminated program"  # gcc's words when the system stops its compiler


@dataclass(frozen=True)
class UnitTypeResult:
    """The compiler's result for a unit."""

    is_clean: bool
    said: str
    is_remembered: bool
    """True when no compiler was started."""


@dataclass(frozen=True)
class TypeCheckEnvironment:
    """What all units of a project share."""

    root: Path
    """The project, which has a name in `-ffile-prefix-map`."""
    scratch: Path
    """Folder for what a compiler writes."""
    generated: Path
    """Folder of headers that were just written."""
    settings: LauncherSettings
    """Say where the cache is, if any."""
    environ: Mapping[str, str]
    """The compiler's whole environment."""
    runner: Runner
    """Starts the compiler."""


def check_unit(argv: Sequence[str], source: str, around: TypeCheckEnvironment) -> UnitTypeResult:
    """Check one unit."""
    with tempfile.TemporaryDirectory(dir=around.scratch) as folder:
        verdict, depfile = Path(folder, "verdict"), Path(folder, "depfile")
        outputs = ("-MD", "-MF", str(depfile), "-o", str(verdict))
        arguments = [*argv, *outputs, "-c", str(around.root / source)]
        command = CompileCommand(arguments, LANGUAGE, str(around.root))
        inputs = UnitInputs(around.settings, command, around.environ)
        inputs.expect(str(path) for path in around.generated.rglob("*") if path.is_file())
        unit = _unit_cache(command, inputs, around)
        known = unit.fetch() if unit else None
        if known is not None:
            clean = verdict.read_text() == "0"
            return UnitTypeResult(clean, known.decode(errors="replace"), is_remembered=True)
        done = around.runner.run(arguments, cwd=around.root, env=around.environ)
        verdict.write_text(str(done.returncode))
        is_answer = done.ok or (_ERROR_MARK in done.output and _KILLED not in done.output)
        read = inputs.read()
        # Without a depfile, a header was not found.
        if unit is not None and is_answer and read and not inputs.changed(read):
            with suppress(OSError):
                unit.store(done.output.encode(), read)
        return UnitTypeResult(done.ok, done.output, is_remembered=False)


def _unit_cache(
    command: CompileCommand, inputs: UnitInputs, around: TypeCheckEnvironment
) -> UnitCache | None:
    """The unit's part of the cache; None when nothing is kept."""
    if not around.settings.cache:
        return None
    unit = UnitCache(around.settings, command, around.environ, inputs)
    return None if unit.refusal else unit


TYPES_CHECK = "types"
SHOWN_ERRORS = 5
"""Errors that are shown of one unit."""
_LINE = re.compile(
    r"^(?:In file included from |\s+from )?(?P<file>/[^:\n]+):(?P<line>\d+)(?::\d+)?[:,]?\s*"
    r"(?:(?P<kind>(?:fatal )?error|note): )?(?P<text>.*)$"
)


def diagnostic_findings(output: str, source: str, root: Path) -> tuple[Finding, ...]:
    """The unit's errors in the compiler's order, the first few of them.

    An error in a header of somebody else is placed at the line of the project that leads there.

    Args:
        output: the compiler's words; paths are absolute.
        source: the unit, relative to the project.
        root: the project.
    """
    findings = list(dict.fromkeys(_error_findings(output, source, root)))
    if not findings:
        lines = output.strip().splitlines()
        what = f"the compiler failed: {lines[-1] if lines else 'it printed nothing'}"
        return (Finding(TYPES_CHECK, "error", source, what),)
    more = len(findings) - SHOWN_ERRORS
    if more > 0:
        findings[SHOWN_ERRORS:] = [Finding(TYPES_CHECK, "error", source, f"{more} more errors")]
    return tuple(findings)


def _error_findings(output: str, source: str, root: Path) -> Iterator[Finding]:
    led = ""
    waiting: tuple[str, str] | None = None  # an error elsewhere: what, and the best place so far
    for line in output.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        place = _project_place(match, root)
        kind = match["kind"] or ""
        if kind.endswith("error"):
            if waiting:
                yield Finding(TYPES_CHECK, "error", waiting[1] or source, waiting[0])
            waiting = None
            if place:
                yield Finding(TYPES_CHECK, "error", place, match["text"])
            else:
                waiting = (f"{match['text']} (in {Path(match['file']).name})", led)
        elif place and kind == "note" and waiting and not waiting[1]:  # clang tells the way later
            waiting = (waiting[0], place)
        elif place and kind != "note":  # g++ tells the way before
            led = place
    if waiting:
        yield Finding(TYPES_CHECK, "error", waiting[1] or source, waiting[0])


def _project_place(match: re.Match[str], root: Path) -> str:
    """`file:line` in the project; empty for a file elsewhere."""
    path = Path(match["file"])
    if not path.is_relative_to(root):
        return ""
    return f"{path.relative_to(root).as_posix()}:{match['line']}"


@dataclass(frozen=True)
class UnitTypeCheck:
    """One unit that is to be checked."""

    variant: str
    source: str
    """Relative to the project."""
    argv: tuple[str, ...]
    """Compiler and arguments, without source and outputs."""


def units_to_check(
    plan: VariantPlan, check: TypeCheck, folders: IncludeFolders, compiler: Path
) -> Iterator[UnitTypeCheck]:
    """The variant's C++ units, binding first; what other languages compile is left out."""
    for part in plan.components:
        argv = (str(compiler), *compiler_arguments(plan, part, check, folders))
        for source in part.compiled:
            if source.language == LANGUAGE:
                yield UnitTypeCheck(plan.variant, source.path, argv)


def types_verdict(
    plan: VariantPlan,
    answers: Sequence[tuple[UnitTypeCheck, UnitTypeResult]],
    versions: str,
    root: Path,
    unproved: str,
) -> SourceVerdict:
    """The verdict on a variant from the answers for all of its units.

    `versions` names compiler and headers, for people.
    """
    findings = {
        finding: None
        for unit, answer in answers
        if not answer.is_clean
        for finding in diagnostic_findings(answer.said, unit.source, root)
    }
    return SourceVerdict(
        plan.variant,
        f"{_units_text(len(answers))} type-checked with {versions}",
        unproved,
        tuple(findings),
        units=len(answers),
        remembered=sum(1 for _, answer in answers if answer.is_remembered),
    )


def _units_text(number: int) -> str:
    return f"{number} unit{'s' if number != 1 else ''}"
