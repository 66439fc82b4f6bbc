"""`kbuild clean-pyproject`: remove what `create-pyproject` wrote, and nothing else.

What kbuild wrote is what the manifest in the target folder says. An edited file stays.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.fileset import read_manifest, remove_known, sha256, write_manifest


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "target_dir", nargs="?", type=Path, help="where the files are (default: the project)"
    )
    parser.add_argument(
        "-d", "--dry-run", action="store_true", help="list the files and remove nothing"
    )
    parser.add_argument(
        "-f", "--force", action="store_true", help="remove files that were edited, too"
    )
    parser.add_argument(
        "--ops-id",
        metavar="ID",
        help="taken for compatibility; what was written is known without it",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Remove the files; a relative target is relative to the current folder."""
    root = ctx.folder(args.kernel_dir)
    target = ctx.folder(args.target_dir) if args.target_dir else root
    known = {path: digest for path, digest in read_manifest(target).items() if _is_inside(path)}
    present = {path: digest for path, digest in known.items() if (target / path).is_file()}
    edited = () if args.force else _edited(target, present)
    removed = tuple(path for path in sorted(present) if path not in edited)
    if not args.dry_run:
        remove_known(target, {path: present[path] for path in removed}, force=args.force)
        write_manifest(target, {path: present[path] for path in edited})
    if args.json:
        answer = {"target": str(target), "removed": removed, "kept": edited}
        ctx.ui.data_json(answer | {"dry_run": args.dry_run})
    else:
        ctx.ui.data("\n".join(removed))
    _say(target, removed, edited, ctx, dry=args.dry_run)
    return 0


def _is_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts


def _edited(target: Path, present: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        path
        for path, digest in sorted(present.items())
        if sha256((target / path).read_bytes()) != digest
    )


def _say(
    target: Path, removed: tuple[str, ...], edited: tuple[str, ...], ctx: Context, *, dry: bool
) -> None:
    for path in edited:
        ctx.ui.warn(f"{path} was edited since and stays; --force removes it")
    done = "would be removed" if dry else "removed"
    ctx.ui.say(f"{len(removed)} files {done}" if removed else f"kbuild wrote nothing in {target}")
