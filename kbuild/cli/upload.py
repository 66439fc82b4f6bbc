"""`kbuild upload` and `build-and-upload`: variants to the Hub."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli import build
from kbuild.cli.parser import add_json
from kbuild.cli.variants import add_variant, find_variants
from kbuild.pipeline.option_values import identity_of, selection_of
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options, read_options, validate_options
from kbuild.publish.upload_options import UploadOptions
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.publish.hub.upload import UploadResult
    from kbuild.publish.upload import HubSession, PreparedUpload


def open_hub_session(ctx: Services) -> HubSession:
    """The Hub that the environment names.

    Raises:
        ToolchainError: `huggingface_hub` is not installed.
    """
    from kbuild.publish.hub.huggingface import open_hub
    from kbuild.publish.hub.repository import RetryPolicy
    from kbuild.publish.upload import HubSession
    from kbuild.system.ui import can_animate

    bars = ctx.ui.verbosity >= 0 and can_animate(sys.stderr, os.environ)
    return HubSession(open_hub(bars=bars), RetryPolicy(say=ctx.ui.say))


def upload_prepared(
    prepared: PreparedUpload, session: HubSession, args: Namespace, ctx: Services, **more: Any
) -> int:
    """Upload, or show what would be; `more` goes into the JSON answer."""
    for warning in prepared.warnings:
        ctx.ui.warn(warning)
    if args.dry_run:
        from kbuild.publish.hub.preflight import difference_lines

        if args.json:
            ctx.ui.data_json({**more, "difference": prepared.difference.to_json()})
        else:
            ctx.ui.data("\n".join(difference_lines(prepared.difference)))
        return 0
    from kbuild.publish.upload import send_upload

    return report_upload(send_upload(prepared, session, ctx), args, ctx, **more)


def report_upload(outcome: UploadResult, args: Namespace, ctx: Services, **more: Any) -> int:
    """Say how it ended; the address on stdout."""
    if args.output_json:
        text = json.dumps(outcome.to_json(), indent=2) + "\n"
        ctx.path(args.output_json).write_text(text, encoding="utf-8")
    if args.json:
        ctx.ui.data_json({**more, "upload": outcome.to_json() | {"commits": outcome.commits}})
    elif outcome.url is None:
        ctx.ui.say(f"{outcome.target.repo} is up to date: nothing to upload")
    else:
        for proposal in outcome.proposals:
            ctx.ui.data(proposal.url)
        if not outcome.proposals:
            ctx.ui.data(outcome.url)
    return 0


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "kernel_dir",
        nargs="?",
        type=Path,
        help="project folder, or a folder of built variants (default: the current folder)",
    )
    add_variant(parser)
    add_options(parser, UploadOptions)
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Look at everything first; then upload what differs."""
    from kbuild.publish.upload import prepare_upload, project_in

    options = read_options(args, ctx, None, UploadOptions)
    folder = ctx.folder(args.kernel_dir)
    project = project_in(folder, options)
    folders = find_variants(folder, args.variant)
    session = open_hub_session(ctx)
    return upload_prepared(prepare_upload(folders, project, options, session), session, args, ctx)


def configure_build_and_upload(parser: ArgumentParser) -> None:
    """The arguments of `build`, and those of `upload`."""
    build.configure(parser)
    add_options(parser, UploadOptions)


def execute_build_and_upload(args: Namespace, ctx: Services) -> int:
    """Ask, build, upload; nothing is uploaded when a variant fails."""
    from kbuild.plan.project import open_project
    from kbuild.publish.hub.upload import UploadResult
    from kbuild.publish.upload import preflight, prepare_upload

    validate_options(args, BuildOptions)
    if args.keep_all:
        raise UsageError(
            "a variant built with --keep-all is for `kbuild tune` and is not published"
        )
    project = open_project(ctx.folder(args.kernel_dir))
    selection = selection_of(args, project.root)
    wanted = read_options(args, ctx, None, UploadOptions)
    session = open_hub_session(ctx)
    ahead = preflight(project, wanted, selection, session, ctx, identity=identity_of(args))
    if args.dry_run:
        # What would be built and uploaded; nothing of that is done.
        target = ahead.target
        if args.json:
            names = {"repo_id": target.repo.id, "branch": target.branch}
            variants = {"build": list(ahead.variants), "published": sorted(ahead.published)}
            ctx.ui.data_json({"ahead": names | variants})
        else:
            ctx.ui.data(f"{target.repo}, {target.branch}")
            for name in ahead.variants:
                ctx.ui.data(f"  {'~' if name in ahead.published else '+'} {name}")
        return 0
    if not ahead.variants:
        return report_upload(
            UploadResult("no_changes", ahead.target, session.hub.address), args, ctx
        )
    if args.missing:
        selection = replace(selection, globs=ahead.variants)
    results, card = build.build_and_report(args, ctx, project, selection)
    if code := build.exit_code(results):
        ctx.ui.warn("nothing was uploaded, because some variants were not built")
        return code
    prepared = prepare_upload(
        [result.path for result in results if result.path], project, wanted, session
    )
    return upload_prepared(
        prepared, session, args, ctx, **build.outcome_json(project, results, card)
    )
