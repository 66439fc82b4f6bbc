"""`kbuild cache`: what the cache of `KBUILD_REMOTE_CACHE` has, and its size limit."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.errors import UsageError
from kbuild.runtime.quantities import parse_size
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.mirror.remote_cache import MirrorFiles, StoredEntry

_MEGABYTE = 1e6


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        choices=("list", "sweep"),
        help="list how many entries of each kind there are; remove those that were not used for "
        "longest",
    )
    parser.add_argument(
        "--size",
        metavar="SIZE",
        help="sweep: leave at most SIZE, such as 20G (default: KBUILD_REMOTE_CACHE_SIZE)",
    )
    parser.add_argument(
        "-d",
        "--dry-run",
        action="store_true",
        help="sweep: list what would be removed, without removing it",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Execute the action."""
    from kbuild.mirror.remote_cache import SIZE_VARIABLE, MirrorFiles, remote_cache_address
    from kbuild.runtime.remote_cache import REMOTE_CACHE_VARIABLE

    address = remote_cache_address(os.environ)
    if address is None:
        raise UsageError(
            "there is no shared cache",
            hint=f"set {REMOTE_CACHE_VARIABLE}; docs/how-to/share-a-cache.md says to what",
        )
    if args.action == "list":
        return _list(args, ctx, MirrorFiles(address))
    size = args.size or os.environ.get(SIZE_VARIABLE)
    if not size:
        raise UsageError("the size limit is missing", hint=f"give --size, or set {SIZE_VARIABLE}")
    if ctx.remote is not None and not ctx.remote.is_written:
        raise UsageError(
            f"the shared cache {address.shown} is only read here",
            hint="see KBUILD_REMOTE_CACHE_MODE",
        )
    limit = parse_size(size, "--size" if args.size else SIZE_VARIABLE)
    removed = MirrorFiles(address).sweep(limit, dry_run=args.dry_run)
    total = sum(entry.size for entry in removed)
    if args.json:
        paths = [entry.path for entry in removed]
        ctx.ui.data_json({"removed": paths, "size": total, "dry_run": args.dry_run})
        return 0
    for entry in removed:
        ctx.ui.data(entry.path)
    verb = "would be removed" if args.dry_run else "removed"
    ctx.ui.say(f"{len(removed)} files of {total / _MEGABYTE:.1f} MB {verb} from {address.shown}")
    return 0


def _list(args: Namespace, ctx: Services, files: MirrorFiles) -> int:
    groups: dict[str, list[StoredEntry]] = {}
    for entry in files.entries():
        groups.setdefault(entry.kind, []).append(entry)
    sizes = {kind: sum(entry.size for entry in group) for kind, group in sorted(groups.items())}
    if args.json:
        kinds = {kind: {"files": len(groups[kind]), "size": size} for kind, size in sizes.items()}
        ctx.ui.data_json({"cache": files.shown, "kinds": kinds, "size": sum(sizes.values())})
        return 0
    rows = [
        (kind, str(len(groups[kind])), f"{size / _MEGABYTE:.1f} MB") for kind, size in sizes.items()
    ]
    ctx.ui.table(("kind", "files", "size"), rows)
    return 0
