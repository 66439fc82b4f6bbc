"""The options of `kbuild check`: which checks run, and their limits."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from kbuild.checks.base import SOURCE_CHECKS
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options
from kbuild.system.errors import UsageError
from kbuild.system.progress import report_work_to
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.checks.base import Group
    from kbuild.checks.report import CheckSelection


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
    """Declare `--load`, `--no-load`, `--fresh` and `--executor`."""
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
    parser.add_argument(
        "--executor",
        metavar="ADDRESS",
        help="load variants on workers of a cluster that fit them (default: "
        "KBUILD_EXECUTOR, unless --python is given)",
    )


def wants_sizes(args: Namespace) -> bool:
    """Whether the size of each file is wanted."""
    return bool(args.max_size) or "size" in args.only or args.verbose > 0


def check_selection_of(
    args: Namespace, *, groups: tuple[Group, ...] = (), slow: bool, sources: bool = False
) -> CheckSelection:
    """Which checks the options ask for.

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
    """Print each check with what it proves."""
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
