"""`kbuild clean`: remove `.kbuild/`, which holds what builds keep for the next build."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.system.errors import FileConflictError
from kbuild.system.services import Services

FOLDER = ".kbuild"
BUILD = "build"
TAG = "CACHEDIR.TAG"
_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "-d",
        "--dry-run",
        action="store_true",
        help="list what would be removed, without removing it",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Remove the folder when kbuild made it; of `build/` only what killed builds left there."""
    from kbuild.pipeline.package import remove_leftovers

    project = ctx.folder(args.kernel_dir)
    target = project / FOLDER
    removed = []
    if target.exists() or target.is_symlink():
        _validate_tag(target)
        left = remove_leftovers(project, project / BUILD, dry_run=args.dry_run)
        removed = [str(path) for path in (*left, target)]
    if removed and not args.dry_run:
        shutil.rmtree(target)
    if args.json:
        ctx.ui.data_json({"removed": removed, "dry_run": args.dry_run})
    elif removed:
        for path in removed:
            ctx.ui.data(path)
    else:
        ctx.ui.say("nothing to remove")
    return 0


def _validate_tag(target: Path) -> None:
    """Raise unless the folder carries the tag that kbuild puts into its own."""
    tag = target / TAG
    if not target.is_symlink() and tag.is_file() and tag.read_bytes().startswith(_SIGNATURE):
        return
    raise FileConflictError(
        f"`{target}` has no {TAG}: kbuild did not make it",
        hint="delete it yourself if you do not need it",
    )
