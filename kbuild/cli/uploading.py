"""The options of verbs that upload, and how they answer."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.context import Context
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.hub.difference import Difference
    from kbuild.hub.target import Outcome
    from kbuild.pipeline.upload import Desk, Prepared, UploadOptions

KINDS = ("kernel", "model")


def add_upload(parser: ArgumentParser) -> None:
    """Declare what `upload` and `build-and-upload` share."""
    where = parser.add_argument_group("where to")
    where.add_argument(
        "--repo-id", metavar="OWNER/NAME", help="repository (default: general.hub.repo-id)"
    )
    where.add_argument(
        "--branch", metavar="NAME", help="branch (default: general.hub.branch, else v<version>)"
    )
    where.add_argument(
        "--repo-type",
        choices=KINDS,
        default="kernel",
        metavar="TYPE",
        help="kernel, or model as for the first kernels (default: kernel)",
    )
    where.add_argument("--private", action="store_true", help="make a new repository private")
    where.add_argument(
        "--create-pr", action="store_true", help="open pull requests instead of changing branches"
    )
    how = parser.add_argument_group("what is uploaded")
    how.add_argument(
        "--missing", action="store_true", help="only variants that the branch does not have"
    )
    how.add_argument(
        "--allow-dirty",
        action="store_true",
        help="also variants made from sources that are in no commit; the card names them",
    )
    how.add_argument(
        "--allow-noncompliant",
        action="store_true",
        help="also variants that checks find fault with; the card names them",
    )
    how.add_argument(
        "--accept-license",
        action="append",
        default=[],
        metavar="NAME",
        help="accept the licence of others' code that is linked into a kernel, e.g. "
        "nvidia-cutlass-dsl (repeatable; or KBUILD_ACCEPT_LICENSE)",
    )
    how.add_argument(
        "--dry-run", action="store_true", help="show what would change, and change nothing"
    )
    parser.add_argument(
        "--output-json", type=Path, metavar="FILE", help="also write the outcome to a file"
    )


def upload_options(args: Namespace, ctx: Context) -> UploadOptions:
    """What the options say.

    Raises:
        UsageError: the outcome could not be written.
    """
    from kbuild.licences import accepted
    from kbuild.pipeline.upload import UploadOptions

    if args.output_json and not ctx.path(args.output_json).parent.is_dir():
        raise UsageError(f"--output-json: `{args.output_json.parent}` is no folder")
    return UploadOptions(
        repo_id=args.repo_id,
        branch=args.branch,
        kind=args.repo_type,
        private=args.private,
        pull=args.create_pr,
        missing=args.missing,
        allow_dirty=args.allow_dirty,
        allow_noncompliant=args.allow_noncompliant,
        accepted=accepted(args.accept_license, os.environ),
    )


def open_desk(ctx: Context) -> Desk:
    """The Hub that the environment names.

    Raises:
        ToolchainError: `huggingface_hub` is not installed.
    """
    from kbuild.hub.huggingface import open_hub
    from kbuild.hub.patience import Patience
    from kbuild.pipeline.upload import Desk
    from kbuild.terminal import animates

    bars = ctx.ui.verbosity >= 0 and animates(sys.stderr, os.environ)
    return Desk(open_hub(bars=bars), Patience(say=ctx.ui.say))


def carry_out(prepared: Prepared, desk: Desk, args: Namespace, ctx: Context, **more: Any) -> int:
    """Upload, or show what would be; `more` goes into the JSON answer."""
    from kbuild.pipeline import Doors
    from kbuild.pipeline.upload import send

    for warning in prepared.warnings:
        ctx.ui.warn(warning)
    if args.dry_run:
        return _show(prepared.difference, args, ctx, more)
    outcome = send(prepared, desk, Doors(ctx.runner, ctx.ui, ctx.cache))
    return tell(outcome, args, ctx, **more)


def tell(outcome: Outcome, args: Namespace, ctx: Context, **more: Any) -> int:
    """Say how it ended; the address on stdout."""
    if args.output_json:
        text = json.dumps(outcome.to_json(), indent=2) + "\n"
        ctx.path(args.output_json).write_text(text, encoding="utf-8")
    if args.json:
        ctx.ui.data_json({**more, "upload": outcome.to_json() | {"commits": outcome.commits}})
    elif outcome.url is None:
        ctx.ui.say(f"{outcome.target.repo} has all of it already: nothing to upload")
    else:
        for proposal in outcome.proposals:
            ctx.ui.data(proposal.url)
        if not outcome.proposals:
            ctx.ui.data(outcome.url)
    return 0


def _show(told: Difference, args: Namespace, ctx: Context, more: dict[str, Any]) -> int:
    from kbuild.hub.difference import in_lines

    if args.json:
        ctx.ui.data_json({**more, "difference": told.to_json()})
    else:
        ctx.ui.data("\n".join(in_lines(told)))
    return 0
