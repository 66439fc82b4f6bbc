"""`kbuild check`: checks sources, variants and libraries."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
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

    from kbuild.checks.base import Output
    from kbuild.checks.report import CheckSelection
    from kbuild.plan.selection import Selection


_PROGRESS_DELAY_S = 1.0


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
    loading = parser.add_mutually_exclusive_group()
    loading.add_argument(
        "--load",
        action="store_true",
        help="also load variants that were built elsewhere, which runs their code",
    )
    loading.add_argument("--no-load", action="store_true", help="skip checks that run Python")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="load again what has been loaded before",
    )
    add_options(parser, CheckLimits)
    checks = parser.add_argument_group("which checks")
    for flag, what in (("--only", "run only this check"), ("--skip", "skip this check")):
        checks.add_argument(
            flag, action="append", default=[], metavar="CHECK", help=f"{what} (repeatable)"
        )
    add_options(checks, BuildOptions, "allowed")
    checks.add_argument("--strict", action="store_true", help="treat warnings as errors")
    checks.add_argument("--list", action="store_true", help="list the checks without running them")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Exit code 6 when a check fails."""
    has_sources = not (args.builds or args.abi)
    wanted = _selection_of_checks(args, has_sources=has_sources)
    if args.list:
        return _list_checks(wanted, ctx, as_json=args.json, has_sources=has_sources)
    session = _CheckSession(args, ctx, wanted)
    with open_targets(args, ctx, unbuilt=has_sources) as opened:
        targets = [
            _selected(target, selection_of(args), has_sources=has_sources) for target in opened
        ]
        steps = count(1)
        with (
            ctx.ui.progress("checking", 0, after=_PROGRESS_DELAY_S) as progress,
            report_work_to(lambda label: progress.update(next(steps), 0, label)),
        ):
            answers = [session.check(target, has_sources=has_sources) for target in targets]
        sizes = bool(args.max_size) or "size" in args.only or args.verbose > 0
        return print_reports(answers, ctx, as_json=args.json, sizes=sizes)


def _selection_of_checks(args: Namespace, *, has_sources: bool) -> CheckSelection:
    """The checks that the options ask for.

    Raises:
        UsageError: a check that there is not, or options that leave none.
    """
    from kbuild.checks.base import LIBRARY_GROUPS
    from kbuild.checks.report import CheckSelection, validate_check_names

    groups = LIBRARY_GROUPS if args.abi else ()
    slow = not (args.no_load or args.abi)
    wanted = CheckSelection(tuple(args.only), tuple(args.skip), groups, slow, args.strict)
    if not (args.only or args.skip):
        return wanted  # without importing the checks: there may be nothing that they look at
    extra = tuple(SOURCE_CHECKS) if has_sources else ()
    known = (*(check.name for check in CheckSelection(groups=groups).checks()), *extra)
    validate_check_names(args.only, known, "--only")
    validate_check_names(args.skip, known, "--skip")
    if not wanted.checks() and not any(wanted.wants(name) for name in extra):
        raise UsageError("the options leave no check", hint="`--list` lists them")
    return wanted


def _list_checks(wanted: CheckSelection, ctx: Services, *, as_json: bool, has_sources: bool) -> int:
    """Print each check with its summary."""
    rows: list[tuple[str, str, str]] = [
        (check.name, check.group, check.summary) for check in wanted.checks()
    ]
    if has_sources:
        rows += [(n, "source", text) for n, text in SOURCE_CHECKS.items() if wanted.wants(n)]
    if as_json:
        keys = ("check", "group", "summary")
        ctx.ui.data_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        cells = [(check, group, summary.replace("`", "")) for check, group, summary in rows]
        ctx.ui.table(("check", "group", "what it proves"), cells)
    return 0


class _CheckSession:
    """The checks of one command, and the interpreters that load kernels for them.

    Raises:
        UsageError: an option has no sense.
        ToolchainError: `--python` or `--also-python` names no Python.
    """

    def __init__(self, args: Namespace, ctx: Services, wanted: CheckSelection) -> None:
        from kbuild.checks.probe_cache import ProbeCache

        self._args, self._ctx, self._wanted = args, ctx, wanted
        self._limits = read_options(args, ctx, None, CheckLimits)
        self._loading, self._probes = LoadOptions(), ProbeCache()
        if wanted.starts_python:  # no interpreter is looked for where no check needs one
            python = chosen_python(args.python, ctx)
            self._loading = read_options(args, ctx, None, LoadOptions, python=python)
            self._probes = ProbeCache(ctx.cache, fresh=args.fresh)

    def check(self, target: CheckTarget, *, has_sources: bool) -> TargetReport:
        """Check one target; a project says itself which checks it overrules.

        Raises:
            ConfigError: its `kbuild.toml` is wrong.
        """
        from kbuild.checks.report import run_selected_checks

        is_project = target.kind == "project"
        allowed = allow_of(self._args, target.path if is_project else None)
        wanted = replace(self._wanted, allowed=allowed) if allowed else self._wanted
        sources = _check_sources(target, wanted, self._ctx) if is_project and has_sources else None
        reports = (
            run_selected_checks(output, wanted.checks(), wanted) for output in self._outputs(target)
        )
        return TargetReport(target, tuple(reports), sources)

    def _outputs(self, target: CheckTarget) -> Iterator[Output]:
        from kbuild.checks.base import Output
        from kbuild.checks.probe_cache import is_built_here
        from kbuild.system.workspace import Workspace

        limits, cache = self._limits, self._probes.folder
        # Variants on the Hub promise to load everywhere.
        if limits.manylinux is None and (self._args.abi or target.kind == "hub"):
            limits = replace(limits, manylinux=DEFAULT_POLICY)
        if target.kind == "library":
            folder = target.path.parent
            yield Output(folder, variant_named(folder.name), asked=limits, alone=target.path)
        for folder in target.variants:
            tree = Workspace(target.path, folder.name).tree
            yield Output(
                folder,
                variant_named(folder.name),
                self._loading.python,
                asked=limits,
                tree=tree if target.kind == "project" and tree.is_dir() else None,
                other_pythons=self._loading.others,
                probe_cache=self._probes,
                built_elsewhere=cache is not None and not is_built_here(cache, folder),
                loads_foreign=self._args.load,
            )


def _selected(target: CheckTarget, selection: Selection, *, has_sources: bool) -> CheckTarget:
    """The target with those of its variants that the options select.

    Raises:
        UsageError: they select none, and there is nothing else to look at.
    """
    built = tuple(path for path in target.variants if _is_selected(path, selection))
    if target.variants and not built and not (has_sources and target.kind == "project"):
        raise UsageError(f"`{target.given}` has no built variant that the options select")
    return replace(target, variants=built)


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
