"""From a target to what checks are given: its variants or its library, limits and interpreter."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.built import chosen_python, variant_of
from kbuild.cli.checking import limits_of
from kbuild.cli.context import Context
from kbuild.cli.targets import Target

if TYPE_CHECKING:
    from kbuild.checks.base import Output
    from kbuild.checks.examination import Examination, Wanted
    from kbuild.checks.limits import Limits


@dataclass(frozen=True)
class Terms:
    """What every output of one command is held against."""

    wanted: Wanted
    limits: Limits
    python: Path | None = None
    portable: bool = False
    """True when a library that needs a newer Linux is an error everywhere."""


def terms_of(args: Namespace, wanted: Wanted, ctx: Context, *, portable: bool = False) -> Terms:
    """The terms that the options set; an interpreter is looked for when a check needs one.

    Raises:
        UsageError: an option has no sense.
        ToolchainError: `--python` names no Python.
    """
    slow = any(check.slow for check in wanted.checks())
    limits = limits_of(args)
    python = chosen_python(args.python, ctx) if slow else None
    return Terms(wanted, limits, python, portable or args.manylinux is not None)


def examinations(target: Target, terms: Terms) -> tuple[Examination, ...]:
    """Every output of the target, examined."""
    from kbuild.checks.examination import examine

    checks = terms.wanted.checks()
    return tuple(examine(output, checks, terms.wanted) for output in _outputs(target, terms))


def _outputs(target: Target, terms: Terms) -> Iterator[Output]:
    from kbuild.build.workspace import Workspace
    from kbuild.checks.base import Output

    # What is on the Hub is there for everybody: it promises to load everywhere.
    portable = terms.portable or target.kind == "hub"
    if target.kind == "library":
        yield _library(target.path, terms, portable=portable)
    for folder in target.variants:
        tree = Workspace(target.path, folder.name).tree
        yield Output(
            folder,
            variant_of(folder),
            terms.python,
            portable,
            terms.limits,
            tree if target.kind == "project" and tree.is_dir() else None,
        )


def _library(path: Path, terms: Terms, *, portable: bool) -> Output:
    from kbuild.checks.base import Output
    from kbuild.checks.readers.libraries import system_of

    return Output(
        path.parent,
        variant_of(path.parent),
        None,
        portable,
        terms.limits,
        alone=path,
        made_for=system_of(path),
    )
