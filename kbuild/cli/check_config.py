"""`kbuild check-config`: every problem of `build.toml`, with lines and hints.

While nothing that was looked at has changed, the answer comes from the cache and neither pydantic
nor tomli is imported.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.config.verdict import Verdict, cached_verdict, remember
from kbuild.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Exit code 0 with warnings at most."""
    root = ctx.folder(args.kernel_dir)
    verdict = cached_verdict(root, ctx.cache) or _judge(root, ctx.cache)
    if args.json:
        ctx.ui.data_json({"ok": verdict.ok, "problems": list(verdict.problems)})
    _say([Problem(**problem) for problem in verdict.problems], ok=verdict.ok, ctx=ctx)
    return 0 if verdict.ok else ConfigError.code


def _judge(root: Path, cache: Path) -> Verdict:
    from kbuild.project import KBUILD_FILE, open_project
    from kbuild.sourcetree import SourceTree

    tree = SourceTree(root)
    problems: list[Problem] = []
    try:
        problems += open_project(root, tree).warnings
    except ConfigError as error:
        problems += error.problems
    if tree.is_file(KBUILD_FILE) or tree.fault(KBUILD_FILE):
        from kbuild.checks.allow import allowed_checks

        try:
            allowed_checks(tree)
        except ConfigError as error:
            problems += error.problems
    return remember(root, cache, problems, tree.observed)


def _say(problems: Sequence[Problem], *, ok: bool, ctx: Context) -> None:
    if not ok:
        ctx.ui.error(ConfigError(problems))
        return
    ctx.ui.warn_all(problems)
    count = f"{len(problems)} warning{'s' if len(problems) != 1 else ''}"
    ctx.ui.say(f"build.toml is valid{f', {count}' if problems else ''}")
