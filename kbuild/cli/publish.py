"""`kbuild publish`: built variants into a mirror, or to the Hub."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.built import add_variant, discover
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json
from kbuild.cli.uploading import add_upload, carry_out, open_desk, upload_options
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.mirror.job import Outcome
    from kbuild.pipeline.publish import Prepared
    from kbuild.pipeline.upload import UploadOptions

_HUB = "hub:"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments: those of `upload`, and where to."""
    parser.add_argument(
        "kernel_dir",
        nargs="?",
        type=Path,
        help="the project's folder, or one with built variants (default: here)",
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="a mirror: a folder, or an address of fsspec such as s3://bucket/kernels; or the Hub: "
        "hub:OWNER/NAME[@BRANCH]",
    )
    add_variant(parser)
    add_upload(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Look at everything first; then publish what differs."""
    options = upload_options(args, ctx)
    if args.to.startswith(_HUB):
        return _to_hub(args, ctx, _named_by(args.to, options))
    return _to_mirror(args, ctx, options)


def _to_hub(args: Namespace, ctx: Context, options: UploadOptions) -> int:
    from kbuild.pipeline.upload import prepare, project_in

    folder = ctx.folder(args.kernel_dir)
    project = project_in(folder, options)
    folders = discover(folder, args.variant)
    desk = open_desk(ctx)
    return carry_out(prepare(folders, project, options, desk), desk, args, ctx)


def _named_by(text: str, options: UploadOptions) -> UploadOptions:
    """With the repository and the branch that `hub:OWNER/NAME@BRANCH` names."""
    repo, _, branch = text.removeprefix(_HUB).partition("@")
    if (options.repo_id or repo) != repo or (branch and (options.branch or branch) != branch):
        raise UsageError(f"`{text}` and --repo-id or --branch name different places")
    return replace(options, repo_id=repo, branch=branch or options.branch)


def _to_mirror(args: Namespace, ctx: Context, options: UploadOptions) -> int:
    from kbuild.mirror.address import parse_address
    from kbuild.mirror.opened import open_store
    from kbuild.pipeline.publish import prepare_mirror, publish_prepared
    from kbuild.pipeline.upload import project_in

    _refuse_senseless(args)
    folder = ctx.folder(args.kernel_dir)
    project = project_in(folder, options)
    folders = discover(folder, args.variant)
    store = open_store(parse_address(args.to, ctx.cwd))
    prepared = prepare_mirror(folders, project, options, store, ctx.ui.say)
    for warning in prepared.warnings:
        ctx.ui.warn(warning)
    if args.dry_run:
        _show(prepared, args, ctx)
        return 0
    _tell(prepared, publish_prepared(prepared), args, ctx)
    return 0


def _tell(prepared: Prepared, outcome: Outcome, args: Namespace, ctx: Context) -> None:
    """Say how it ended; where it is on stdout, as `get_local_kernel` takes it from a folder."""
    store, place = prepared.job.store, prepared.place
    inside = place.link if store.target(place.link) else place.snapshot(outcome.snapshot)
    path = f"{store.shown}/{inside}"
    if args.json:
        told = {"mirror": store.shown, "repo_id": place.repo.id, "branch": place.branch}
        state = {"changed": outcome.changed, "path": path, "sent": outcome.sent}
        ctx.ui.data_json({"publication": told | state})
        return
    if not outcome.changed:
        ctx.ui.say(f"{store.shown} has all of {place} already: nothing to publish")
    ctx.ui.data(path)


def _refuse_senseless(args: Namespace) -> None:
    given = {"--private": args.private, "--create-pr": args.create_pr}
    given |= {"--repo-type": args.repo_type != "kernel", "--output-json": args.output_json}
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} is for the Hub", hint="--to hub:OWNER/NAME publishes there")


def _show(prepared: Prepared, args: Namespace, ctx: Context) -> None:
    if args.json:
        ctx.ui.data_json({"difference": prepared.to_json()})
    else:
        ctx.ui.data("\n".join(prepared.lines()))
