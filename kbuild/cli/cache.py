"""`kbuild cache`: show what the cache of this machine holds, and make it smaller."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

from kbuild.cli.parser import add_json
from kbuild.system.errors import UsageError, counted
from kbuild.system.object_cache import (
    cache_size_limit,
    headers_size_limit,
    prune_object_cache,
    prune_precompiled_headers,
)
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


_KINDS = {
    "objects": "objects and images",
    "headers": "precompiled headers",
    "store": "toolchains, headers, DSLs",
    "described": "descriptions of DSL kernels",
    "inline": "kernels of load_inline",
    "crashes": "reports of bugs",
}
"""Folder of the cache -> what is in it; everything else is what kbuild remembers."""
_REMEMBERED = "answers and facts"


def _show(args: Namespace, ctx: Services) -> int:
    """Print how many files of each kind there are."""
    kinds: dict[str, list[int]] = {}
    for folder, _, files in os.walk(ctx.cache):
        parts = Path(folder).relative_to(ctx.cache).parts
        sizes = kinds.setdefault(_KINDS.get(parts[0] if parts else "", _REMEMBERED), [])
        for name in files:
            with suppress(OSError):  # another process removes files as well
                sizes.append(Path(folder, name).lstat().st_size)
    total = sum(map(sum, kinds.values()))
    if args.json:
        held = {kind: {"files": len(sizes), "size": sum(sizes)} for kind, sizes in kinds.items()}
        ctx.ui.data_json({"cache": str(ctx.cache), "kinds": held, "size": total})
        return 0
    ordered = sorted(kinds.items(), key=lambda kind: -sum(kind[1]))
    rows = [(kind, str(len(sizes)), _megabytes(sum(sizes))) for kind, sizes in ordered if sizes]
    ctx.ui.table(("kind", "files", "size"), rows)
    limit = cache_size_limit(os.environ)
    ctx.ui.say(f"{_megabytes(total)} in {ctx.cache}; builds keep {_megabytes(limit)} of objects")
    return 0


def _prune(args: Namespace, ctx: Services) -> int:
    """Make this machine's cache smaller."""
    from kbuild.system.store import open_store

    if args.days < 0:
        raise UsageError("--days takes a number that is not negative")
    limit = parse_size(args.size, "--size") if args.size else cache_size_limit(os.environ)
    size = prune_object_cache(ctx.cache, limit, dry_run=args.dry_run)
    headers = prune_precompiled_headers(
        ctx.cache, min(limit, headers_size_limit(os.environ)), dry_run=args.dry_run
    )
    entries = open_store(ctx.cache).prune(args.days, dry_run=args.dry_run)
    if args.json:
        removed = {"objects": size, "headers": headers, "removed": list(entries)}
        ctx.ui.data_json({**removed, "dry_run": args.dry_run})
        return 0
    for name in entries:
        ctx.ui.data(name)
    verb = "would be removed" if args.dry_run else "removed"
    toolchains = counted(len(entries), "toolchain")
    sizes = f"{_megabytes(size)} of objects, {_megabytes(headers)} of precompiled headers"
    ctx.ui.say(f"{sizes} and {toolchains} {verb} from {ctx.cache}")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:.1f} MB"
