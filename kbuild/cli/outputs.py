"""From a target to what checks are given: its variants or its library, limits and interpreter."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbuild.cli.built import Loading, loading_of, variant_of
from kbuild.cli.checking import allow_of, limits_of
from kbuild.cli.context import Context
from kbuild.cli.targets import Target

if TYPE_CHECKING:
    from pathlib import Path

    from kbuild.checks.base import Output
    from kbuild.checks.examination import Examination, Wanted
    from kbuild.checks.limits import Limits
    from kbuild.checks.readers.memory import Memory


@dataclass(frozen=True)
class Terms:
    """What every output of one command is held against."""

    wanted: Wanted
    limits: Limits
    loading: Loading = field(default_factory=Loading)
    portable: bool = False
    """True when kbuild's own policy is asked for where no other is: breaking it is an error."""
    memory: Memory | None = None
    """What was loaded before; None where nothing is loaded."""
    loads_foreign: bool = False
    """True for `--load`."""

    def on(self, target: Target, args: Namespace) -> Terms:
        """The terms for one target: a project says itself which checks it overrules.

        Raises:
            ConfigError: its `kbuild.toml` is wrong.
        """
        allowed = allow_of(args, target.path if target.kind == "project" else None)
        return replace(self, wanted=replace(self.wanted, allowed=allowed)) if allowed else self


def terms_of(args: Namespace, wanted: Wanted, ctx: Context, *, portable: bool = False) -> Terms:
    """The terms that the options set; an interpreter is looked for when a check needs one.

    Raises:
        UsageError: an option has no sense.
        ToolchainError: `--python` or `--also-python` names no Python.
    """
    slow = any(check.slow for check in wanted.checks())
    limits = limits_of(args)
    loading = loading_of(args, ctx) if slow else Loading()
    memory = _memory(args, ctx) if slow else None
    return Terms(wanted, limits, loading, portable, memory, getattr(args, "load", False))


def _memory(args: Namespace, ctx: Context) -> Memory:
    from kbuild.checks.readers.memory import Memory

    return Memory(ctx.cache, fresh=args.fresh)


def examinations(target: Target, terms: Terms) -> tuple[Examination, ...]:
    """Every output of the target, examined."""
    from kbuild.checks.examination import examine

    checks = terms.wanted.checks()
    return tuple(examine(output, checks, terms.wanted) for output in _outputs(target, terms))


def _outputs(target: Target, terms: Terms) -> Iterator[Output]:
    from kbuild.build.workspace import Workspace
    from kbuild.checks.base import Output
    from kbuild.checks.readers.memory import Memory

    limits = _limits(target, terms)
    if target.kind == "library":
        folder = target.path.parent
        yield Output(folder, variant_of(folder), asked=limits, alone=target.path)
    for folder in target.variants:
        tree = Workspace(target.path, folder.name).tree
        beside = terms.loading.version_beside(folder)
        memory = terms.memory or Memory()
        known = tree if target.kind == "project" and tree.is_dir() else None
        yield Output(
            folder,
            variant_of(folder),
            terms.loading.python,
            asked=limits,
            tree=known,
            other_pythons=terms.loading.others,
            beside=beside,
            memory=memory,
            foreign=frozenset(_foreign(memory, folder, beside)),
            loads_foreign=terms.loads_foreign,
        )


def _foreign(memory: Memory, *folders: Path | None) -> Iterator[Path]:
    """Those that were not built here; only the cache of what loads knows, and only it is asked."""
    from kbuild.checks.readers.origin import is_built_here

    for folder in folders:
        if folder is not None and memory.folder and not is_built_here(memory.folder, folder):
            yield folder


def _limits(target: Target, terms: Terms) -> Limits:
    """What is on the Hub is there for everybody: it promises to load everywhere."""
    from kbuild.checks.limits import POLICY

    if terms.limits.manylinux is None and (terms.portable or target.kind == "hub"):
        return replace(terms.limits, manylinux=POLICY)
    return terms.limits
