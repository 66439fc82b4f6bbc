"""The whole way: which variants, their plans, a toolchain for each, build, check, package.

Each function here only names stages; what a stage does is in its own module.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kbuild.build.compile import Compilation, default_jobs
from kbuild.build.state import read_state, record
from kbuild.build.workspace import Workspace
from kbuild.checks import Finding, Output
from kbuild.checks.base import run_checks
from kbuild.errors import BuildError, CheckError, KbuildError, ToolchainError
from kbuild.frameworks import FRAMEWORKS
from kbuild.identity import Identity
from kbuild.matrix.selection import Choice, Selection, select, variants
from kbuild.package import finish, place, recover
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree
from kbuild.toolchains import ToolchainSource
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import Host
from kbuild.toolchains.sources import HeaderSources, WithHeaders
from kbuild.ui import Ui

Status = Literal["built", "up-to-date", "skipped", "failed"]


@dataclass(frozen=True)
class Doors:
    """Every way in which the pipeline touches the world."""

    runner: Runner
    ui: Ui
    cache: Path
    """kbuild's cache folder."""


@dataclass(frozen=True)
class BuildOptions:
    """What `kbuild build` was asked for."""

    selection: Selection = field(default_factory=Selection)
    output: Path | None = None
    """Folder that gets the variant directories; `build/` in the project when None."""
    python: Path | None = None
    jobs: int | None = None
    identity: Identity | None = None
    """The state of the source, where the caller knows better than git."""
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Folders with the headers of dependencies, by dependency."""


@dataclass(frozen=True)
class Built:
    """What became of one variant."""

    variant: str
    status: Status
    reason: str = ""
    path: Path | None = None
    seconds: float = 0.0
    units: int = 0
    """Build steps that ran."""
    findings: tuple[Finding, ...] = ()
    error: KbuildError | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "variant": self.variant,
            "status": self.status,
            "reason": self.reason,
            "path": str(self.path) if self.path else None,
            "seconds": round(self.seconds, 3),
            "units": self.units,
            "findings": [finding.to_json() for finding in self.findings],
            "error": self.error.to_json() if self.error else None,
        }


def plan(
    project: Project, selection: Selection, runner: Runner, identity: Identity | None = None
) -> tuple[VariantPlan, ...]:
    """The plans of the selected variants; git is asked for an identity that is not given."""
    chosen = select(project, selection)
    return make_plans(project, chosen, SourceTree(project.root), runner, identity=identity)


def toolchains(
    runner: Runner, cache: Path, python: Path | None, sources: Mapping[str, Path]
) -> WithHeaders:
    """What this machine can build with; `sources` are folders of headers by dependency."""
    host = Host(runner, FactCache(cache), python)
    return WithHeaders(host, HeaderSources(sources, cache, runner))


def with_host(plans: Sequence[VariantPlan], host: WithHeaders) -> tuple[VariantPlan, ...]:
    """The plans with this machine's toolchain, where it fits; no headers are fetched."""
    host = replace(host, fetch=False)
    return tuple(
        made.with_toolchain(host.provision(made.requires).summary)
        if host.refuses(made.requires) is None
        else made
        for made in plans
    )


def refusals(
    project: Project, choices: Sequence[Choice], runner: Runner, host: ToolchainSource
) -> dict[str, str | None]:
    """Per variant: why this machine cannot build it, or None."""
    plans = make_plans(project, choices, SourceTree(project.root), runner)
    return {made.variant: host.refuses(made.requires) for made in plans}


def build(project: Project, options: BuildOptions, doors: Doors) -> tuple[Built, ...]:
    """Build what was asked for and this machine can build; the rest is skipped with a reason.

    Raises:
        ToolchainError: nothing that was asked for can be built here.
    """
    host = toolchains(doors.runner, doors.cache, options.python, options.sources)
    plans = plan(project, options.selection, doors.runner, options.identity)
    refusals = {made.variant: host.refuses(made.requires) for made in plans}
    buildable = [made for made in plans if refusals[made.variant] is None]
    if not buildable and not options.selection.is_explicit:
        buildable = _beyond_default(project, options, host, doors)
    skipped = [Built(name, "skipped", reason) for name, reason in refusals.items() if reason]
    if not buildable:
        raise _nothing_to_build(project, skipped)
    results = [_attempt(project, made, host, options, doors) for made in buildable]
    return (*results, *skipped)


def _beyond_default(
    project: Project, options: BuildOptions, host: ToolchainSource, doors: Doors
) -> list[VariantPlan]:
    """Variants outside a plain build that this machine's Torch happens to fit."""
    wanted = options.selection.backends or project.file.general.backends
    others: Sequence[Choice] = [
        choice for choice in variants(project) if choice.variant.backend in wanted
    ]
    tree = SourceTree(project.root)
    made = make_plans(project, others, tree, doors.runner, identity=options.identity)
    return [candidate for candidate in made if host.refuses(candidate.requires) is None]


def _nothing_to_build(project: Project, skipped: Sequence[Built]) -> ToolchainError:
    reasons = "".join(f"\n    {result.variant}: {result.reason}" for result in skipped)
    return ToolchainError(
        f"none of these variants of {project.name} can be built on this machine:{reasons}",
        hint="`kbuild doctor` shows what is there and what is missing",
    )


def _attempt(
    project: Project, made: VariantPlan, host: ToolchainSource, options: BuildOptions, doors: Doors
) -> Built:
    began = time.monotonic()
    try:
        result = build_variant(project, made, host, options, doors)
    except (BuildError, CheckError, ToolchainError) as error:
        doors.ui.error(error)
        result = Built(made.variant, "failed", error.message, error=error)
    return replace(result, seconds=time.monotonic() - began)


def build_variant(
    project: Project, made: VariantPlan, host: ToolchainSource, options: BuildOptions, doors: Doors
) -> Built:
    """One variant: up to date, or generated, compiled, checked and moved into place.

    Raises:
        BuildError: a process failed; the variant directory is as it was.
        CheckError: the result breaks a promise; the variant directory is as it was.
        ToolchainError: something that the toolchain lacks could not be fetched.
    """
    toolchain = host.provision(made.requires)
    made = made.with_toolchain(toolchain.summary)
    space = Workspace(project.root, made.variant)
    target = (options.output or project.root / "build") / made.variant
    with space.locked():
        recover(target)
        state = read_state(space.state)
        if state is not None and state.holds(made, project.root, target):
            return Built(made.variant, "up-to-date", path=target)
        _check_sources(project, made)
        with doors.ui.progress(made.variant, 0) as progress:
            jobs = options.jobs or default_jobs()
            compilation = Compilation(made, toolchain, space, doors.runner, jobs, progress.update)
            staged = compilation.run()
        finish(made, staged.folder)
        findings = _check(made, staged.folder, toolchain.python)
        place(staged.folder, target)
        record(made, project.root, target, staged.inputs).write(space.state)
        return Built(made.variant, "built", "", target, units=staged.units, findings=findings)


def _check_sources(project: Project, made: VariantPlan) -> None:
    """What can be judged on the Python sources is judged before anything is compiled."""
    from kbuild.checks.imports import check_imports_source
    from kbuild.checks.ops import check_ops_source

    folder = f"{FRAMEWORKS.get(made.framework).package_root}/{project.python_name}"
    package = project.root / folder
    findings = [
        replace(finding, where=f"{folder}/{finding.where}")
        for check in (check_ops_source, check_imports_source)
        for finding in check(package, project.python_name)
    ]
    _refuse(findings, f"{project.name} would break its promises")


def _refuse(findings: Sequence[Finding], words: str) -> None:
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        listed = "".join(f"\n    {finding}" for finding in errors)
        raise CheckError(f"{words}:{listed}", [finding.to_json() for finding in findings])


def _check(made: VariantPlan, folder: Path, python: Path) -> tuple[Finding, ...]:
    findings = run_checks(Output(folder, made.parsed_variant, python))
    _refuse(findings, f"{made.variant} was built but breaks its promises")
    return findings
