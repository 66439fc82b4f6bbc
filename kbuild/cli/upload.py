"""`kbuild upload`: built variants to the Hub."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.built import add_variant, discover
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json
from kbuild.cli.uploading import add_upload, carry_out, open_desk, upload_options


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from pathlib import Path

    parser.add_argument(
        "kernel_dir",
        nargs="?",
        type=Path,
        help="the project's folder, or one with built variants (default: here)",
    )
    add_variant(parser)
    add_upload(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Look at everything first; then upload what differs."""
    from kbuild.pipeline.upload import prepare, project_in

    options = upload_options(args, ctx)
    folder = ctx.folder(args.kernel_dir)
    project = project_in(folder, options)
    folders = discover(folder, args.variant)
    desk = open_desk(ctx)
    return carry_out(prepare(folders, project, options, desk), desk, args, ctx)
