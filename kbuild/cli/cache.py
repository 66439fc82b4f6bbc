"""`kbuild cache`: what is in this machine's cache and in a shared one, and making them smaller."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild import manual_page
from kbuild.cli.parser import add_json
from kbuild.errors import UsageError, counted
from kbuild.runtime.object_cache import (
    cache_size_limit,
    headers_size_limit,
    prune_object_cache,
    prune_precompiled_headers,
)
from kbuild.runtime.quantities import parse_size
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.mirror.remote_cache import MirrorFiles, StoredEntry

_MEGABYTE = 1e6


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=("show", "prune", "list", "sweep"),
        help="show what this machine's cache holds (default); prune: remove from it what was not "
        "used for longest; list and sweep: the same for the cache that several machines share",
    )
    parser.add_argument(
        "--size",
        metavar="SIZE",
        help="prune: leave at most SIZE of objects and images, and of precompiled headers, such as "
        "2G (default: KBUILD_CACHE_SIZE, else 5G, and KBUILD_PRECOMPILED_HEADERS, else 3G); "
        "sweep: of everything (default: KBUILD_REMOTE_CACHE_SIZE)",
    )
    parser.add_argument(
        "--days",
        type=float,
        default=30.0,
        metavar="N",
        help="prune: remove toolchains that were not used for N days (default: 30)",
    )
    parser.add_argument(
        "-d",
        "--dry-run",
        action="store_true",
        help="prune, sweep: print what would be removed, without removing it",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Execute the action."""
    if args.action in {"show", "prune"}:
        return (_show if args.action == "show" else _prune)(args, ctx)
    from kbuild.mirror.remote_cache import SIZE_VARIABLE, MirrorFiles, remote_cache_address
    from kbuild.runtime.remote_cache import REMOTE_CACHE_VARIABLE

    address = remote_cache_address(os.environ)
    if address is None:
        raise UsageError(
            "there is no shared cache",
            hint=f"set {REMOTE_CACHE_VARIABLE}; see {manual_page('how-to/share-a-cache.md')}",
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
    files = counted(len(removed), "file")
    ctx.ui.say(f"{files} of {_megabytes(total)} {verb} from {address.shown}")
    return 0


_KINDS = {
    "objects": "objects and images",
    "headers": "precompiled headers",
    "store": "toolchains, headers, DSLs",
    "described": "descriptions of DSL kernels",
    "inline": "kernels of kbuild.load_inline",
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
    from kbuild.store import open_store

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


def _list(args: Namespace, ctx: Services, files: MirrorFiles) -> int:
    groups: dict[str, list[StoredEntry]] = {}
    for entry in files.entries():
        groups.setdefault(entry.kind, []).append(entry)
    sizes = {kind: sum(entry.size for entry in group) for kind, group in sorted(groups.items())}
    if args.json:
        kinds = {kind: {"files": len(groups[kind]), "size": size} for kind, size in sizes.items()}
        ctx.ui.data_json({"cache": files.shown, "kinds": kinds, "size": sum(sizes.values())})
        return 0
    rows = [(kind, str(len(groups[kind])), _megabytes(size)) for kind, size in sizes.items()]
    ctx.ui.table(("kind", "files", "size"), rows)
    return 0
