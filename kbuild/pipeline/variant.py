"""One variant: up to date, or generated, compiled, checked and moved into place."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.state import read_state, record
from kbuild.build.workspace import Workspace
from kbuild.errors import (
    BuildError,
    CheckError,
    DamagedFileError,
    IncompleteError,
    KbuildError,
    StorageError,
    ToolchainError,
    grouped,
)
from kbuild.identity import Identity, identify
from kbuild.installation import package_digest
from kbuild.metadata import Builder, overruled_in
from kbuild.package import finish, place, recover
from kbuild.pipeline.evidence import discard, evidence, told_truly
from kbuild.pipeline.images import image_rows, with_compilers
from kbuild.pipeline.options import BuildOptions, Doors
from kbuild.pipeline.outcome import Built
from kbuild.pipeline.sources import SourceJudge
from kbuild.plan import VariantPlan
from kbuild.planning.files import content
from kbuild.project import Project
from kbuild.sourcetree import SourceTree
from kbuild.storage import explained
from kbuild.toolchains import Toolchain, ToolchainSource

if TYPE_CHECKING:  # what only a build that has something to do needs
    from kbuild.build.budget import Run
    from kbuild.build.ninja import Tell
    from kbuild.checks import Finding
    from kbuild.languages.workshop import Workshop

_FAILURES = (BuildError, CheckError, ToolchainError, StorageError, DamagedFileError, OSError)
"""What one variant may fail with while others go on."""


@dataclass(frozen=True)
class Site:
    """Where and how the variants of one command are built."""

    project: Project
    tools: ToolchainSource
    options: BuildOptions
    doors: Doors
    noted: dict[str, list[str]] = field(default_factory=dict, compare=False)
    """Warnings before the compilation, with the variants that they are about."""

    def note(self, variant: str, words: str) -> None:
        """Warn about a variant; words that were said of another wait for `tell_noted`."""
        variants = self.noted.setdefault(words, [])
        variants.append(variant)
        if len(variants) == 1 or self.doors.ui.verbosity > 0:
            self.doors.ui.warn(f"{variant}: {words}")

    def tell_noted(self) -> None:
        """Say of which other variants each warning is true."""
        for words, (_, *others) in self.noted.items():
            if others and self.doors.ui.verbosity <= 0:
                more = f" and {len(others) - 1} more" if len(others) > 1 else ""
                self.doors.ui.warn(f"{others[0]}{more}: {words}")

    @cached_property
    def builder(self) -> Builder:
        """The kbuild that is running."""
        from kbuild.provenance.builder import running_builder

        return running_builder(self.doors.runner)

    @cached_property
    def judge(self) -> SourceJudge:
        """What the sources show without a compiler."""
        return SourceJudge(self.project)

    @property
    def output(self) -> Path:
        """Where variant directories go."""
        return self.options.output or self.project.root / "build"

    @cached_property
    def identity(self) -> Identity | None:
        """The state of the source, where plans are not to ask git themselves."""
        if self.options.identity is not None or not self.options.dev:
            return self.options.identity
        tree = SourceTree(self.project.root)
        found = identify(tree, content(self.project, tree), self.doors.runner)
        return found.for_development()

    def target_of(self, made: VariantPlan) -> Path:
        """Where the variant directory goes."""
        return self.output / made.variant

    def is_current(self, made: VariantPlan) -> bool:
        """True when building `made`, toolchain included, would change nothing."""
        package_digest(self.doors.cache)  # remembered there, for those who have no cache folder
        target = self.target_of(made)
        state = read_state(Workspace(self.project.root, made.variant).state)
        if state is None or not state.holds(made, self.project.root, target):
            return False
        allowed = self.options.allowed
        told = overruled_in(target)
        return told is not None and all(allowed.get(name) == told[name] for name in told)


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
    return replace(_unchanged(site, made, toolchain), seconds=time.monotonic() - began)


def _unchanged(site: Site, made: VariantPlan, toolchain: Toolchain) -> Built:
    """The outcome for a variant that is current."""
    target = site.target_of(made)
    written, told = evidence(site, made, toolchain), overruled_in(target) or {}
    return Built(made.variant, "up-to-date", path=target, provenance=written, overruled=told)


def fetch(site: Site, made: VariantPlan) -> None:
    """Have the variant's toolchain here, while other variants have the processors."""
    with suppress(ToolchainError, StorageError, OSError):  # building it will say why
        site.tools.provision(made.requires)


def refused(site: Site, plans: Sequence[VariantPlan]) -> dict[str, Built]:
    """The outcomes of variants whose sources cannot be right; each reason is told once."""
    reasons: dict[str, tuple[CheckError, list[str]]] = {}
    for made in plans:
        try:
            _check_sources(site, made)
        except CheckError as error:
            reasons.setdefault(error.message, (error, []))[1].append(made.variant)
    for reason, _ in reasons.values():
        site.doors.ui.error(reason)
    return {
        variant: Built(variant, "failed", reason.message, error=reason)
        for reason, variants in reasons.values()
        for variant in variants
    }


def attempt(
    site: Site, made: VariantPlan, *, run: Run, tell: Tell, workshop: Workshop | None = None
) -> Built:
    """Build one variant; what goes wrong with it is told and becomes its outcome."""
    began = time.monotonic()
    try:
        result = build_variant(site, made, run=run, tell=tell, workshop=workshop)
    except IncompleteError as error:
        result = Built(made.variant, "incomplete", error.message, error=error)
    except _FAILURES as error:
        known = error if isinstance(error, KbuildError) else explained(error, (site.project.root,))
        if run.stopped.is_set() or known is None:
            raise
        site.doors.ui.error(known)
        result = Built(made.variant, "failed", known.message, error=known)
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
    from kbuild.checks.allow import overruled
    from kbuild.checks.readers.origin import note_built

    toolchain = site.tools.provision(made.requires)
    made = made.with_toolchain(toolchain.summary)
    space, target = Workspace(site.project.root, made.variant), site.target_of(made)
    with space.locked(lambda: run.is_ending) as lock:
        recover(target)
        if site.is_current(made):
            return _unchanged(site, made, toolchain)
        on_sources = _check_sources(site, made)
        for note in (*made.notes, *toolchain.notes):
            site.note(made.variant, note)
        runner = site.doors.runner
        warn = site.doors.ui.warn
        compilation = Compilation(made, toolchain, space, runner, run, tell, lock, workshop, warn)
        staged = compilation.perform()
        read = [path for path, then in staged.inputs.items() if then is not None]
        told = with_compilers(told_truly(site, made, read), staged.compiled)
        finish(told, staged.folder, site.builder)
        findings = _check(site, made, staged.folder, toolchain, space.tree)
        findings = (*_only_in_sources(on_sources, findings), *findings)
        allowed = overruled(findings)
        if allowed:
            finish(told, staged.folder, replace(site.builder, overruled=allowed))
        place(staged.folder, target)
        note_built(site.doors.cache, target, staged.folder)
        discard(site, made)
        record(made, target, staged.inputs).write(space.state)
        result = Built(
            made.variant,
            "built",
            "",
            target,
            units=staged.units,
            findings=findings,
            images=image_rows(staged.compiled),
            overruled=allowed,
        )
        return replace(result, provenance=evidence(site, made, toolchain))


def _check_sources(site: Site, made: VariantPlan) -> tuple[Finding, ...]:
    """What can be judged on the sources is judged before anything is compiled."""
    words = f"{site.project.name} would break its promises"
    return _judged(site, site.judge.findings(made), words)


def _check(
    site: Site, made: VariantPlan, folder: Path, toolchain: Toolchain, tree: Path
) -> tuple[Finding, ...]:
    from kbuild.checks.base import Output, run_checks
    from kbuild.checks.readers.memory import Memory

    python, portable = toolchain.python, toolchain.redistributable
    memory = Memory(site.doors.cache, fresh=site.options.fresh)
    output = Output(folder, made.parsed_variant, python, portable, tree=tree, memory=memory)
    words = f"{made.variant} was built but breaks its promises"
    return _judged(site, run_checks(output), words)


def _judged(site: Site, findings: Iterable[Finding], words: str) -> tuple[Finding, ...]:
    """The findings as they count for this project.

    Raises:
        CheckError: there are errors that nobody overruled.
    """
    from kbuild.checks.allow import can_be_overruled, overrule

    judged = overrule(findings, site.options.allowed)
    errors = [finding for finding in judged if finding.severity == "error"]
    if errors:
        told = _told_together(errors, everything=site.doors.ui.verbosity > 0)
        listed = "".join(f"\n    {each}" for each in told)
        names = filter(can_be_overruled, dict.fromkeys(finding.check for finding in errors))
        options = " ".join(f"--allow {name}" for name in names)
        hint = f"correct them; where a check is wrong about this kernel: {options}"
        found = [finding.to_json() for finding in judged]
        raise CheckError(f"{words}:{listed}", found, hint=hint if options else "")
    return judged


def _told_together(findings: Sequence[Finding], *, everything: bool) -> list[str]:
    """The findings as text, those that repeat each other in one."""
    if everything:
        return list(map(str, findings))
    repetitions = grouped(findings, lambda f: (f.check, f.what, f.where))
    return [str(one.first.with_note(one.note)) for one in repetitions]


def _only_in_sources(
    on_sources: Iterable[Finding], on_output: Iterable[Finding]
) -> Iterator[Finding]:
    """The overruled findings that a look at the variant does not give again."""
    again = {(finding.check, finding.what) for finding in on_output}
    for finding in on_sources:
        if finding.overruled and (finding.check, finding.what) not in again:
            yield finding
