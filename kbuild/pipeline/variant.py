"""One variant: up to date, or generated, compiled, checked and moved into place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.state import read_state, record
from kbuild.build.workspace import Workspace
from kbuild.errors import BuildError, CheckError, IncompleteError, ToolchainError
from kbuild.metadata import Builder
from kbuild.package import finish, place, recover
from kbuild.pipeline.bindings import binding_findings
from kbuild.pipeline.evidence import discard, evidence, told_truly
from kbuild.pipeline.images import image_rows, with_compilers
from kbuild.pipeline.options import BuildOptions, Doors
from kbuild.pipeline.outcome import Built
from kbuild.pipeline.sources import python_findings
from kbuild.plan import VariantPlan
from kbuild.project import Project
from kbuild.toolchains import Toolchain, ToolchainSource

if TYPE_CHECKING:  # what only a build that has something to do needs
    from kbuild.build.budget import Run
    from kbuild.build.ninja import Tell
    from kbuild.checks import Finding
    from kbuild.languages.workshop import Workshop


@dataclass(frozen=True)
class Site:
    """Where and how the variants of one command are built."""

    project: Project
    tools: ToolchainSource
    options: BuildOptions
    doors: Doors

    @cached_property
    def builder(self) -> Builder:
        """The kbuild that is running."""
        from kbuild.provenance.builder import running_builder

        return running_builder(self.doors.runner)

    def target_of(self, made: VariantPlan) -> Path:
        """Where the variant directory goes."""
        return (self.options.output or self.project.root / "build") / made.variant

    def is_current(self, made: VariantPlan) -> bool:
        """True when building `made`, toolchain included, would change nothing."""
        state = read_state(Workspace(self.project.root, made.variant).state)
        return state is not None and state.holds(made, self.project.root, self.target_of(made))


def up_to_date(site: Site, made: VariantPlan) -> Built | None:
    """The outcome for a variant that has nothing to do; starts and imports nothing."""
    began = time.monotonic()
    if not site.target_of(made).is_dir():
        return None
    try:
        toolchain = site.tools.provision(made.requires)
    except ToolchainError:
        return None  # building it will say why
    made = made.with_toolchain(toolchain.summary)
    if not site.is_current(made):
        return None
    written = evidence(site, made, toolchain)
    return Built(
        made.variant,
        "up-to-date",
        path=site.target_of(made),
        seconds=time.monotonic() - began,
        provenance=written,
    )


def fetch(site: Site, made: VariantPlan) -> None:
    """Have the variant's toolchain here, while other variants have the processors."""
    with suppress(ToolchainError):  # building it will say why
        site.tools.provision(made.requires)


def attempt(
    site: Site, made: VariantPlan, *, run: Run, tell: Tell, workshop: Workshop | None = None
) -> Built:
    """Build one variant; what goes wrong with it is told and becomes its outcome."""
    began = time.monotonic()
    try:
        result = build_variant(site, made, run=run, tell=tell, workshop=workshop)
    except IncompleteError as error:
        result = Built(made.variant, "incomplete", error.message, error=error)
    except (BuildError, CheckError, ToolchainError) as error:
        if run.stopped.is_set():
            raise
        site.doors.ui.error(error)
        result = Built(made.variant, "failed", error.message, error=error)
    return replace(result, seconds=time.monotonic() - began)


def build_variant(
    site: Site, made: VariantPlan, *, run: Run, tell: Tell, workshop: Workshop | None = None
) -> Built:
    """Build one variant.

    Raises:
        BuildError: a process failed; the variant directory is as it was.
        ConfigError: `build.toml` does not fit the kernel functions that it names.
        CheckError: the result breaks a promise; the variant directory is as it was.
        IncompleteError: the run's time was over; the next run continues.
    """
    from kbuild.build.compile import Compilation

    toolchain = site.tools.provision(made.requires)
    made = made.with_toolchain(toolchain.summary)
    space, target = Workspace(site.project.root, made.variant), site.target_of(made)
    with space.locked(lambda: run.is_ending) as lock:
        recover(target)
        if site.is_current(made):
            written = evidence(site, made, toolchain)
            return Built(made.variant, "up-to-date", path=target, provenance=written)
        _check_sources(site.project, made)
        for note in (*made.notes, *toolchain.notes):
            site.doors.ui.warn(f"{made.variant}: {note}")
        runner = site.doors.runner
        compilation = Compilation(made, toolchain, space, runner, run, tell, lock, workshop)
        staged = compilation.perform()
        told = with_compilers(told_truly(site, made, staged.inputs), staged.compiled)
        finish(told, staged.folder, site.builder)
        findings = _check(site, made, staged.folder, toolchain, space.tree)
        place(staged.folder, target)
        discard(site, made)
        record(made, site.project.root, target, staged.inputs).write(space.state)
        result = Built(
            made.variant,
            "built",
            "",
            target,
            units=staged.units,
            findings=findings,
            images=image_rows(staged.compiled),
        )
        return replace(result, provenance=evidence(site, made, toolchain))


def _check_sources(project: Project, made: VariantPlan) -> None:
    """What can be judged on the sources is judged before anything is compiled."""
    findings = (
        *python_findings(project, (made.framework,)),
        *binding_findings(project, (made.backend,)),
    )
    _refuse(findings, f"{project.name} would break its promises")


def _check(
    site: Site, made: VariantPlan, folder: Path, toolchain: Toolchain, tree: Path
) -> tuple[Finding, ...]:
    from kbuild.checks.base import Output, run_checks
    from kbuild.checks.readers.memory import Memory

    python, portable = toolchain.python, toolchain.redistributable
    memory = Memory(site.doors.cache, fresh=site.options.fresh)
    output = Output(folder, made.parsed_variant, python, portable, tree=tree, memory=memory)
    findings = run_checks(output)
    _refuse(findings, f"{made.variant} was built but breaks its promises")
    return findings


def _refuse(findings: Sequence[Finding], words: str) -> None:
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        listed = "".join(f"\n    {finding}" for finding in errors)
        raise CheckError(f"{words}:{listed}", [finding.to_json() for finding in findings])
