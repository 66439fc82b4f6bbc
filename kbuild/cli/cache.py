"""`kbuild cache`: show what the cache of this machine holds, and make it smaller."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from kbuild.cli.parser import add_json
from kbuild.system.atomic import files_below
from kbuild.system.cache import ANSWERS_TITLE, HEADERS_LIMIT, KINDS, LOCKS_FOLDER, OBJECTS_LIMIT
from kbuild.system.cache_sweep import cache_size_limit, headers_size_limit, sweep
from kbuild.system.errors import UsageError, counted
from kbuild.system.quantities import parse_size
from kbuild.system.services import Services

_MEGABYTE = 1e6


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=("show", "prune"),
        help="show what the cache holds (default); prune: remove what was not used for longest",
    )
    parser.add_argument(
        "--size",
        metavar="SIZE",
        help="prune: keep at most SIZE of objects and images, and of precompiled "
        "headers, e.g. 2G (default: KBUILD_CACHE_SIZE and "
        "KBUILD_PRECOMPILED_HEADERS)",
    )
    parser.add_argument(
        "--days",
        type=float,
        default=30.0,
        metavar="N",
        help="prune: remove toolchains not used for N days (default: 30)",
    )
    parser.add_argument(
        "-d",
        "--dry-run",
        action="store_true",
        help="prune: print what would be removed, without removing it",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Execute the action."""
    return (_show if args.action == "show" else _prune)(args, ctx)


_TITLES = {kind.name: kind.title for kind in KINDS} | {
    "store": "toolchains, headers, DSLs",
    "crashes": "reports of bugs",
    LOCKS_FOLDER: ANSWERS_TITLE,
}
"""Folder of the cache -> its content; others are called by their names."""


def _show(args: Namespace, ctx: Services) -> int:
    """Print how many files of each kind there are."""
    kinds: dict[str, list[int]] = {}
    for path, status in files_below(str(ctx.cache)):
        folder = Path(path).relative_to(ctx.cache).parts[0]
        kinds.setdefault(_TITLES.get(folder, folder), []).append(status.st_size)
    total = sum(map(sum, kinds.values()))
    if args.json:
        held = {kind: {"files": len(sizes), "size": sum(sizes)} for kind, sizes in kinds.items()}
        ctx.ui.data_json({"cache": str(ctx.cache), "kinds": held, "size": total})
        return 0
    ordered = sorted(kinds.items(), key=lambda kind: -sum(kind[1]))
    rows = [(kind, str(len(sizes)), _megabytes(sum(sizes))) for kind, sizes in ordered if sizes]
    ctx.ui.table(("kind", "files", "size"), rows)
    limit = cache_size_limit(os.environ)
    ctx.ui.say(
        f"{_megabytes(total)} in {ctx.cache}; builds keep {_megabytes(limit)} of objects and images"
    )
    return 0


def _prune(args: Namespace, ctx: Services) -> int:
    """Make this machine's cache smaller."""
    from kbuild.system.store import open_store

    if args.days < 0:
        raise UsageError("--days takes a number that is not negative")
    limit = parse_size(args.size, "--size") if args.size else cache_size_limit(os.environ)
    limits = {
        OBJECTS_LIMIT: limit,
        HEADERS_LIMIT: min(limit, headers_size_limit(os.environ)),
    }
    entries = open_store(ctx.cache).prune(args.days, dry_run=args.dry_run)
    swept = sweep(ctx.cache, limits, dry_run=args.dry_run)
    size, headers = swept[OBJECTS_LIMIT], swept[HEADERS_LIMIT]
    if args.json:
        removed = {"objects": size, "headers": headers, "removed": list(entries)}
        ctx.ui.data_json({**removed, "dry_run": args.dry_run})
        return 0
    for name in entries:
        ctx.ui.data(name)
    verb = "would be removed" if args.dry_run else "removed"
    toolchains = counted(len(entries), "toolchain")
    sizes = (
        f"{_megabytes(size)} of objects and images, {_megabytes(headers)} of precompiled headers"
    )
    ctx.ui.say(f"{sizes} and {toolchains} {verb} from {ctx.cache}")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:.1f} MB"
