"""`kbuild check`: checks sources, variants and libraries."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from kbuild.checks.base import SOURCE_CHECKS
from kbuild.checks.policies import DEFAULT_POLICY, CheckLimits
from kbuild.cli.check_report import SourceReport, TargetReport, print_reports
from kbuild.cli.parser import add_json
from kbuild.cli.variants import (
    CheckTarget,
    LoadOptions,
    add_python,
    add_targets,
    chosen_python,
    open_targets,
)
from kbuild.pipeline.option_values import allow_of, selection_of
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options, read_options
from kbuild.project.variant import variant_named
from kbuild.system.errors import UsageError
from kbuild.system.progress import report_work_to
from kbuild.system.services import Services

if TYPE_CHECKING:
    from pathlib import Path

    from kbuild.checks.base import Group, Output
    from kbuild.checks.probe_cache import ProbeCache
    from kbuild.checks.report import CheckReport, CheckSelection
    from kbuild.plan.selection import Selection


_PROGRESS_DELAY_S = 1.0
"""Seconds."""


def add_checks(parser: ArgumentParser) -> None:
    """Declare `--only`, `--skip`, `--allow`, `--list` and `--strict`."""
    group = parser.add_argument_group("which checks")
    group.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CHECK",
        help="run only this check (repeatable)",
    )
    group.add_argument(
        "--skip", action="append", default=[], metavar="CHECK", help="skip this check (repeatable)"
    )
    add_options(group, BuildOptions, "allowed")
    group.add_argument("--strict", action="store_true", help="treat warnings as errors")
    group.add_argument("--list", action="store_true", help="list the checks without running them")


@contextmanager
def check_progress(ctx: Services) -> Iterator[None]:
    """Checks that take longer than a moment say on the terminal what they look at."""
    steps = count(1)
    with (
        ctx.ui.progress("checking", 0, after=_PROGRESS_DELAY_S) as progress,
        report_work_to(lambda label: progress.update(next(steps), 0, label)),
    ):
        yield


def add_load_mode(parser: ArgumentParser) -> None:
    """Declare `--load`, `--no-load` and `--fresh`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--load",
        action="store_true",
        help="also load variants that were built elsewhere, which runs their code",
    )
    group.add_argument("--no-load", action="store_true", help="skip checks that run Python")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="load again what has been loaded before",
    )


def wants_sizes(args: Namespace) -> bool:
    """True when the size of each file is to be shown."""
    return bool(args.max_size) or "size" in args.only or args.verbose > 0


def check_selection_of(
    args: Namespace, *, groups: tuple[Group, ...] = (), slow: bool, sources: bool = False
) -> CheckSelection:
    """The checks that the options ask for.

    Raises:
        UsageError: a check that there is not, or options that leave none.
    """
    from kbuild.checks.report import CheckSelection, validate_check_names

    wanted = CheckSelection(tuple(args.only), tuple(args.skip), groups, slow, args.strict)
    if not (args.only or args.skip):
        return wanted  # without importing the checks: there may be nothing that they look at
    everything = CheckSelection(groups=groups)
    extra = tuple(SOURCE_CHECKS) if sources else ()
    known = (*(check.name for check in everything.checks()), *extra)
    validate_check_names(args.only, known, "--only")
    validate_check_names(args.skip, known, "--skip")
    if not wanted.checks() and not any(wanted.wants(name) for name in extra):
        raise UsageError("the options leave no check", hint="`--list` lists them")
    return wanted


def list_checks(
    wanted: CheckSelection, ctx: Services, *, as_json: bool, sources: bool = False
) -> int:
    """Print each check with its summary."""
    rows: list[tuple[str, str, str]] = [
        (check.name, check.group, check.summary) for check in wanted.checks()
    ]
    if sources:
        rows += [(n, "source", text) for n, text in SOURCE_CHECKS.items() if wanted.wants(n)]
    if as_json:
        keys = ("check", "group", "summary")
        ctx.ui.data_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        cells = [(check, group, summary.replace("`", "")) for check, group, summary in rows]
        ctx.ui.table(("check", "group", "what it proves"), cells)
    return 0


@dataclass(frozen=True)
class CheckSettings:
    """The settings of one command for all outputs."""

    wanted: CheckSelection
    limits: CheckLimits
    loading: LoadOptions = field(default_factory=LoadOptions)
    portable: bool = False
    """True when kbuild's own policy is asked for where no other is: breaking it is an error."""
    probe_cache: ProbeCache | None = None
    """Answers of earlier loads; None where nothing is loaded."""
    loads_foreign: bool = False
    """True for `--load`."""

    def for_target(self, target: CheckTarget, args: Namespace) -> CheckSettings:
        """The settings for one target: a project says itself which checks it overrules.

        Raises:
            ConfigError: its `kbuild.toml` is wrong.
        """
        allowed = allow_of(args, target.path if target.kind == "project" else None)
        return replace(self, wanted=replace(self.wanted, allowed=allowed)) if allowed else self


def check_settings_of(
    args: Namespace, wanted: CheckSelection, ctx: Services, *, portable: bool = False
) -> CheckSettings:
    """The settings that the options set; an interpreter is looked for when a check needs one.

    Raises:
        UsageError: an option has no sense.
        ToolchainError: `--python` or `--also-python` names no Python.
    """
    slow = wanted.starts_python
    limits = read_options(args, ctx, None, CheckLimits)
    loading = LoadOptions()
    if slow:
        python = chosen_python(args.python, ctx)
        loading = read_options(args, ctx, None, LoadOptions, python=python)
    probe_cache = _probe_cache(args, ctx) if slow else None
    return CheckSettings(wanted, limits, loading, portable, probe_cache, args.load)


def _probe_cache(args: Namespace, ctx: Services) -> ProbeCache:
    from kbuild.checks.probe_cache import ProbeCache

    return ProbeCache(ctx.cache, fresh=args.fresh)


def run_checks(target: CheckTarget, settings: CheckSettings) -> tuple[CheckReport, ...]:
    """Every output of the target, examined."""
    from kbuild.checks.report import run_selected_checks

    return tuple(
        run_selected_checks(output, settings.wanted.checks(), settings.wanted)
        for output in _outputs_of(target, settings)
    )


def _outputs_of(target: CheckTarget, settings: CheckSettings) -> Iterator[Output]:
    from kbuild.checks.base import Output
    from kbuild.checks.probe_cache import ProbeCache
    from kbuild.system.workspace import Workspace

    limits = _limits_for(target, settings)
    if target.kind == "library":
        folder = target.path.parent
        yield Output(folder, variant_named(folder.name), asked=limits, alone=target.path)
    for folder in target.variants:
        tree = Workspace(target.path, folder.name).tree
        probe_cache = settings.probe_cache or ProbeCache()
        known = tree if target.kind == "project" and tree.is_dir() else None
        yield Output(
            folder,
            variant_named(folder.name),
            settings.loading.python,
            asked=limits,
            tree=known,
            other_pythons=settings.loading.others,
            probe_cache=probe_cache,
            built_elsewhere=_is_built_elsewhere(probe_cache, folder),
            loads_foreign=settings.loads_foreign,
        )


def _is_built_elsewhere(probe_cache: ProbeCache, folder: Path) -> bool:
    """True for a variant that was not built here, by the cache of answers about loading."""
    from kbuild.checks.probe_cache import is_built_here

    return probe_cache.folder is not None and not is_built_here(probe_cache.folder, folder)


def _limits_for(target: CheckTarget, settings: CheckSettings) -> CheckLimits:
    """The limits for a target; variants on the Hub promise to load everywhere."""
    if settings.limits.manylinux is None and (settings.portable or target.kind == "hub"):
        return replace(settings.limits, manylinux=DEFAULT_POLICY)
    return settings.limits


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_targets(parser)
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--builds",
        action="store_true",
        help="check built variants, and no sources",
    )
    parts.add_argument(
        "--abi",
        action="store_true",
        help="check only libraries, and run no Python; they must comply with "
        f"{DEFAULT_POLICY} unless --manylinux names another policy",
    )
    add_options(parser, BuildOptions, "selection")
    add_python(parser, "loads the kernels")
    add_options(parser, LoadOptions)
    add_load_mode(parser)
    add_options(parser, CheckLimits)
    add_checks(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Exit code 6 when a check fails."""
    from kbuild.checks.base import LIBRARY_GROUPS

    has_sources = not (args.builds or args.abi)
    groups = LIBRARY_GROUPS if args.abi else ()
    slow = not (args.no_load or args.abi)
    wanted = check_selection_of(args, groups=groups, slow=slow, sources=has_sources)
    if args.list:
        return list_checks(wanted, ctx, as_json=args.json, sources=has_sources)
    settings = check_settings_of(args, wanted, ctx, portable=args.abi)
    with open_targets(args, ctx, unbuilt=has_sources) as opened:
        targets = [
            _selected(target, selection_of(args), has_sources=has_sources) for target in opened
        ]
        with check_progress(ctx):
            answers = [
                _check_target(
                    target, settings.for_target(target, args), ctx, has_sources=has_sources
                )
                for target in targets
            ]
        return print_reports(answers, ctx, as_json=args.json, sizes=wants_sizes(args))


def _selected(target: CheckTarget, selection: Selection, *, has_sources: bool) -> CheckTarget:
    """The target with those of its variants that the options select.

    Raises:
        UsageError: they select none, and there is nothing else to look at.
    """
    built = tuple(path for path in target.variants if _is_selected(path, selection))
    if target.variants and not built and not (has_sources and target.kind == "project"):
        raise UsageError(f"`{target.given}` has no built variant that the options select")
    return replace(target, variants=built)


def _check_target(
    target: CheckTarget, settings: CheckSettings, ctx: Services, *, has_sources: bool
) -> TargetReport:
    is_project = has_sources and target.kind == "project"
    sources = _check_sources(target, settings.wanted, ctx) if is_project else None
    return TargetReport(target, run_checks(target, settings), sources)


def _check_sources(target: CheckTarget, wanted: CheckSelection, ctx: Services) -> SourceReport:
    from kbuild.checks.client import ClientCheck, check_backend
    from kbuild.pipeline.source_checks import flag_findings, pointer_findings, python_findings
    from kbuild.plan.project import BUILD_FILE, open_project

    project = open_project(target.path)
    ctx.ui.warn_all(project.warnings)
    backends = project.file.general.backends
    on_backends = [
        finding
        for backend in backends
        if wanted.wants(ClientCheck.name)
        for finding in check_backend(backend, BUILD_FILE)
    ]
    on_python = python_findings(project, wants=wanted.wants)
    on_flags = flag_findings(project, backends, os.environ) if wanted.wants("flags") else ()
    on_pointers = pointer_findings(project, backends) if wanted.wants("pointers") else ()
    findings = wanted.judged((*on_backends, *on_flags, *on_python, *on_pointers))
    return SourceReport(project.name, findings)


def _is_selected(folder: Path, selection: Selection) -> bool:
    """True when `--backend`, `--torch` and `--system` select a built variant."""
    variant = variant_named(folder.name)
    if variant is None:
        return not (selection.backends or selection.torch or selection.systems)
    return (
        (not selection.backends or variant.backend in selection.backends)
        and (not selection.torch or variant.framework_version in (None, *selection.torch))
        and (not selection.systems or variant.system in (None, *selection.systems))
    )
