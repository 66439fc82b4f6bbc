"""`kbuild build-and-upload`: from source to the Hub, with every question asked before the build."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli import build
from kbuild.cli.context import Context
from kbuild.cli.uploading import add_upload, carry_out, open_desk, tell, upload_options
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.pipeline.outcome import Built
    from kbuild.pipeline.upload.before import Ahead


def configure(parser: ArgumentParser) -> None:
    """The arguments of `build`, and those of `upload`."""
    build.configure(parser)
    add_upload(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Ask, build, upload; nothing is uploaded when a variant fails."""
    from kbuild.cli.identity import identity_of
    from kbuild.cli.selection import selection_of
    from kbuild.hub.target import Outcome
    from kbuild.pipeline import Doors
    from kbuild.pipeline.upload import before_build, prepare
    from kbuild.project import open_project

    build.refuse_senseless(args)
    if args.keep_all:
        raise UsageError("a variant of --keep-all is for `kbuild tune`, and is not published")
    project = open_project(ctx.folder(args.kernel_dir))
    output = ctx.path(args.output) if args.output else None
    selection, wanted = selection_of(args), upload_options(args, ctx)
    desk = open_desk(ctx)
    doors = Doors(ctx.runner, ctx.ui, ctx.cache)
    ahead = before_build(project, wanted, selection, desk, doors, identity=identity_of(args))
    if args.dry_run:
        return _show(ahead, args, ctx)
    if not ahead.variants:
        return tell(Outcome("no_changes", ahead.target, desk.hub.address), args, ctx)
    if args.missing:
        selection = replace(selection, globs=ahead.variants)
    results, card = build.perform(args, ctx, project, output, selection)
    if code := build.exit_code(results):
        ctx.ui.warn("nothing was uploaded, since not everything was built")
        return code
    prepared = prepare(_folders(results), project, wanted, desk)
    return carry_out(prepared, desk, args, ctx, **build.answer(project, results, card))


def _folders(results: Sequence[Built]) -> list[Path]:
    return [result.path for result in results if result.path]


def _show(ahead: Ahead, args: Namespace, ctx: Context) -> int:
    """What would be built and uploaded; nothing of that is done."""
    target = ahead.target
    if args.json:
        names = {"repo_id": target.repo.id, "branch": target.branch}
        told = {"build": list(ahead.variants), "published": sorted(ahead.published)}
        ctx.ui.data_json({"ahead": names | told})
    else:
        ctx.ui.data(f"{target.repo} ({target.repo.kind}), {target.branch}")
        for name in ahead.variants:
            ctx.ui.data(f"  {'~' if name in ahead.published else '+'} {name}")
    return 0
