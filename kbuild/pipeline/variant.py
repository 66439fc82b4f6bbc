"""Builds one variant, unless it is up to date: generates, compiles, checks and installs it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.state import is_up_to_date, record_build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.package import finalize_stage, install_variant, restore_old_variant
from kbuild.pipeline.result import BuildResult
from kbuild.pipeline.source_checks import SourceChecker
from kbuild.plan.metadata import Builder, metadata_in
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import BUILD_FILE, Project
from kbuild.project.variant import host_system
from kbuild.system.code_digest import package_digest
from kbuild.system.emulator import find_emulator
from kbuild.system.errors import (
    BuildError,
    CheckError,
    DamagedFileError,
    IncompleteError,
    KbuildError,
    StorageError,
    ToolchainError,
    grouped,
)
from kbuild.system.git import Repository
from kbuild.system.os_errors import explain_os_error
from kbuild.system.services import Services
from kbuild.system.workspace import Workspace
from kbuild.toolchains.base import Toolchain

if TYPE_CHECKING:
    from kbuild.build.compile import ObjectFiller, StagedVariant
    from kbuild.build.ninja import ProgressCallback
    from kbuild.checks import Finding
    from kbuild.dsl.aot_compiler import AotCompiler
    from kbuild.pipeline.toolchains import Toolchains
    from kbuild.system.budget import Run


_SHOWN = 3


def mark_dirty_if_uncommitted(
    context: BuildContext, plan: VariantPlan, inputs: Sequence[str]
) -> VariantPlan:
    """The plan, dirty when the compiler read a project file that is not in the commit.

    Which headers a build reads is known only after it. An identity that the caller gave is not
    questioned.
    """
    if plan.commit is None or plan.dirty or context.options.identity is not None:
        return plan
    new = Repository(context.project.root, context.services.runner).uncommitted(
        (BUILD_FILE, *inputs)
    )
    if not new:
        return plan
    listed = ", ".join(f"`{path}`" for path in new[:_SHOWN]) + (", ..." if new[_SHOWN:] else "")
    context.services.ui.warn(
        f"{plan.variant}: made from {listed}, which is in no commit; its provenance is marked dirty"
    )
    return replace(plan, dirty=True)


_FAILURES = (BuildError, CheckError, ToolchainError, StorageError, DamagedFileError, OSError)
"""Errors with which one variant may fail while others go on."""


@dataclass(frozen=True)
class BuildContext:
    """The project, toolchains and options with which one command builds variants."""

    project: Project
    tools: Toolchains
    options: BuildOptions
    services: Services
    noted: dict[str, list[str]] = field(default_factory=dict, compare=False)
    """Warnings before the compilation, with their variants."""

    def note(self, variant: str, message: str) -> None:
        """Warn about a variant; a message that another variant had is repeated only at the end."""
        variants = self.noted.setdefault(message, [])
        variants.append(variant)
        if len(variants) == 1 or self.services.ui.verbosity > 0:
            self.services.ui.warn(f"{variant}: {message}")

    def report_repeated_warnings(self) -> None:
        """Print which other variants each repeated warning is about."""
        for message, (_, *others) in self.noted.items():
            if others and self.services.ui.verbosity <= 0:
                more = f" and {len(others) - 1} more" if len(others) > 1 else ""
                self.services.ui.warn(f"{others[0]}{more}: {message}")

    @cached_property
    def builder(self) -> Builder:
        """The kbuild that is running."""
        from kbuild.pipeline.package import running_builder

        return running_builder(self.services.runner)

    @cached_property
    def source_checker(self) -> SourceChecker:
        """Finds the problems that sources show without a compiler."""
        return SourceChecker(self.project)

    @property
    def output(self) -> Path:
        """The folder of variant directories."""
        return self.options.output or self.project.root / "build"

    def target_of(self, plan: VariantPlan) -> Path:
        """The variant directory."""
        return self.output / plan.variant

    def is_current(self, plan: VariantPlan) -> bool:
        """True when building `plan`, toolchain included, would change nothing."""
        package_digest(self.services.cache)  # remembered there, for those who have no cache folder
        target = self.target_of(plan)
        workspace = Workspace(self.project.root, plan.variant).root
        if not is_up_to_date(workspace, plan, self.project.root, target):
            return False
        # Checks that were overruled or not run must be so again, else they are due now.
        allowed, built = self.options.allowed, metadata_in(target)
        return (
            built is not None
            and all(allowed.get(name) == why for name, why in built.overruled.items())
            and {*built.not_run} <= {*self.not_run(plan)}
        )

    def not_run(self, plan: VariantPlan) -> tuple[str, ...]:
        """The checks that need a machine of the variant's processor, if this is none.

        Raises:
            UsageError: the variable of the emulator is wrong.
        """
        system = plan.requires.system
        runs = system in (None, str(host_system())) or find_emulator(system)
        return () if runs or self.options.is_local_only else ("load",)


def up_to_date_result(context: BuildContext, plan: VariantPlan) -> BuildResult | None:
    """The outcome for a variant that has nothing to do; starts and imports nothing."""
    began = time.monotonic()
    if not context.target_of(plan).is_dir():
        return None
    try:
        toolchain = context.tools.provision(plan.requires)
    except ToolchainError:
        return None  # building it will say why
    plan = plan.with_toolchain(toolchain.summary)
    if not context.is_current(plan):
        return None
    return replace(_unchanged_result(context, plan), seconds=time.monotonic() - began)


def _unchanged_result(context: BuildContext, plan: VariantPlan) -> BuildResult:
    """The outcome for a variant that is current."""
    target = context.target_of(plan)
    built = metadata_in(target)
    return BuildResult(
        plan.variant,
        "up-to-date",
        path=target,
        overruled=built.overruled if built else {},
        not_run=built.not_run if built else (),
    )


def prefetch_toolchain(context: BuildContext, plan: VariantPlan) -> None:
    """Fetch the variant's toolchain, while other variants have the processors."""
    with suppress(ToolchainError, StorageError, OSError):  # building it will say why
        context.tools.provision(plan.requires)


def source_check_failures(
    context: BuildContext, plans: Sequence[VariantPlan]
) -> dict[str, BuildResult]:
    """The outcomes of variants whose sources cannot be right; each reason is reported once."""
    reasons: dict[str, tuple[CheckError, list[str]]] = {}
    for plan in plans:
        try:
            _check_sources(context, plan)
        except CheckError as error:
            reasons.setdefault(error.message, (error, []))[1].append(plan.variant)
    for reason, _ in reasons.values():
        context.services.ui.error(reason)
    return {
        variant: BuildResult(variant, "failed", reason.message, error=reason)
        for reason, variants in reasons.values()
        for variant in variants
    }


def try_build(
    context: BuildContext,
    plan: VariantPlan,
    *,
    run: Run,
    tell: ProgressCallback,
    aot_compiler: AotCompiler | None = None,
    filler: ObjectFiller | None = None,
) -> BuildResult:
    """Build one variant; a failure is reported and becomes its outcome."""
    began = time.monotonic()
    try:
        result = build_variant(
            context, plan, run=run, tell=tell, aot_compiler=aot_compiler, filler=filler
        )
    except IncompleteError as error:
        result = BuildResult(plan.variant, "incomplete", error.message, error=error)
    except _FAILURES as error:
        known = (
            error
            if isinstance(error, KbuildError)
            else explain_os_error(error, (context.project.root,))
        )
        # After Ctrl-C or another variant's crash, processes fail because they were ended.
        if run.stopped.is_set() or known is None:
            raise
        context.services.ui.error(known)
        result = BuildResult(plan.variant, "failed", known.message, error=known)
    return replace(result, seconds=time.monotonic() - began)


def build_variant(
    context: BuildContext,
    plan: VariantPlan,
    *,
    run: Run,
    tell: ProgressCallback,
    aot_compiler: AotCompiler | None = None,
    filler: ObjectFiller | None = None,
) -> BuildResult:
    """Build one variant.

    Raises:
        BuildError: a process failed; the variant directory is as it was.
        ConfigError: `build.toml` does not fit the kernel functions that it names.
        CheckError: the result fails a check; the variant directory is as it was.
        IncompleteError: the run's time was over; the next run continues.
    """
    from kbuild.build.compile import Compilation
    from kbuild.checks.allow import overruled_checks
    from kbuild.checks.probe_cache import record_built
    from kbuild.dsl.image_rows import image_rows

    toolchain = context.tools.provision(plan.requires)
    plan = plan.with_toolchain(toolchain.summary)
    space, target = Workspace(context.project.root, plan.variant), context.target_of(plan)
    with space.locked(lambda: run.is_ending, context.services.ui.say_once) as lock:
        # First: after a crash between two renames, the good variant lies beside `target`.
        restore_old_variant(target)
        # Asked again under the lock: another process may have built it meanwhile.
        if context.is_current(plan):
            return _unchanged_result(context, plan)
        on_sources = _check_sources(context, plan)
        for note in (*plan.notes, *toolchain.notes):
            context.note(plan.variant, note)
        runner = context.services.runner
        warn = context.services.ui.warn
        compilation = Compilation(
            plan, toolchain, space, runner, run, tell, lock, aot_compiler, warn, filler
        )
        staged = compilation.perform()
        findings = _finalize_checked(context, plan, staged, toolchain, space.tree, on_sources)
        install_variant(staged.folder, target)
        if not context.options.is_local_only:
            record_built(context.services.cache, target, staged.folder)
        # The record comes after the move: a build that is killed before it is simply repeated.
        record_build(space.root, plan, target, staged.inputs)
        return BuildResult(
            plan.variant,
            "built",
            "",
            target,
            steps=staged.steps,
            findings=findings,
            images=image_rows(staged.compiled),
            overruled=overruled_checks(findings),
            not_run=context.not_run(plan),
        )


def _finalize_checked(  # noqa: PLR0917
    context: BuildContext,
    plan: VariantPlan,
    staged: StagedVariant,
    toolchain: Toolchain,
    tree: Path,
    on_sources: Iterable[Finding],
) -> tuple[Finding, ...]:
    """Write the staged variant's metadata, and check it; the findings, those on sources included.

    Raises:
        CheckError: the variant fails a check.
    """
    from kbuild.checks.allow import overruled_checks
    from kbuild.dsl.image_rows import with_image_compilers

    read = [path for path, then in staged.inputs.items() if then is not None]
    final_plan = with_image_compilers(
        mark_dirty_if_uncommitted(context, plan, read), staged.compiled
    )
    builder = replace(context.builder, not_run=context.not_run(plan))
    finalize_stage(final_plan, staged.folder, builder)
    findings = _check_output(context, plan, staged.folder, toolchain, tree)
    findings = (*_only_in_sources(on_sources, findings), *findings)
    # The metadata states what was overruled, which is known only after the checks.
    if allowed := overruled_checks(findings):
        finalize_stage(final_plan, staged.folder, replace(builder, overruled=allowed))
    return findings


def _check_sources(context: BuildContext, plan: VariantPlan) -> tuple[Finding, ...]:
    """Run the checks that need sources alone, before anything is compiled."""
    if context.options.is_local_only:
        return ()
    message = f"{context.project.name} would fail its checks"
    return _raise_for_errors(context, context.source_checker.findings(plan), message)


def _check_output(
    context: BuildContext, plan: VariantPlan, folder: Path, toolchain: Toolchain, tree: Path
) -> tuple[Finding, ...]:
    if context.options.is_local_only:
        return ()
    from kbuild.checks.base import Output, run_checks
    from kbuild.checks.probe_cache import ProbeCache

    python, portable = toolchain.python, toolchain.redistributable
    services = context.services
    probe_cache = ProbeCache(services.cache, fresh=context.options.fresh)
    output = Output(
        folder, plan.parsed_variant, python, portable, tree=tree, probe_cache=probe_cache
    )
    message = f"{plan.variant} was built but fails its checks"
    return _raise_for_errors(context, run_checks(output), message)


def _raise_for_errors(
    context: BuildContext, findings: Iterable[Finding], message: str
) -> tuple[Finding, ...]:
    """The findings as they count for this project.

    Raises:
        CheckError: there are errors that nobody overruled.
    """
    from kbuild.checks.allow import is_overruling_offered, overrule

    judged = overrule(findings, context.options.allowed)
    errors = _without_consequences([f for f in judged if f.severity == "error"])
    if errors:
        lines = _grouped_lines(errors, everything=context.services.ui.verbosity > 0)
        listed = "".join(f"\n    {each}" for each in lines)
        names = filter(is_overruling_offered, dict.fromkeys(finding.check for finding in errors))
        options = " ".join(f"--allow {name}" for name in names)
        hint = f"correct them; where a check is wrong about this kernel: {options}"
        entries = [finding.to_json() for finding in judged]
        raise CheckError(f"{message}:{listed}", entries, hint=hint if options else "")
    return judged


def _without_consequences(errors: Sequence[Finding]) -> list[Finding]:
    """Findings without those that only repeat that a symbol is missing, as the loader does."""
    symbols = {symbol for error in errors for symbol in error.symbols}
    return [
        error
        for error in errors
        if error.symbols or not any(f"undefined symbol: {name}" in error.what for name in symbols)
    ]


def _grouped_lines(findings: Sequence[Finding], *, everything: bool) -> list[str]:
    """The findings as text, repeated ones as one."""
    if everything:
        return list(map(str, findings))
    repetitions = grouped(findings, lambda f: (f.check, f.what, f.where))
    return [str(repetition.first.with_note(repetition.note)) for repetition in repetitions]


def _only_in_sources(
    on_sources: Iterable[Finding], on_output: Iterable[Finding]
) -> Iterator[Finding]:
    """Findings on sources that matter and that the checks of the variant do not repeat."""
    from kbuild.checks.base import SOURCE_CHECKS

    again = {(finding.check, finding.what) for finding in on_output}
    for finding in on_sources:
        matters = finding.overruled or finding.check in SOURCE_CHECKS
        if matters and (finding.check, finding.what) not in again:
            yield finding
