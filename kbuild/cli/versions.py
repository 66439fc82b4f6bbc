"""`kbuild versions`: the versions of a kernel, their variants, and which of them fits here."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbuild.cli.built import add_python, chosen_python
from kbuild.cli.context import Context
from kbuild.cli.locations import HELP, locate
from kbuild.cli.parser import add_json

if TYPE_CHECKING:
    from kbuild.versions.fitting import Fitting
    from kbuild.versions.model import Source, Version


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "location", nargs="?", default=".", metavar="WHERE", help=f"{HELP} (default: here)"
    )
    add_python(parser, "would load the kernel")
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Print the versions, newest first."""
    location = locate(args.location, ctx)
    told = [_told(source, location.name, args, ctx) for source in location.sources]
    if args.json:
        ctx.ui.data_json([entry for entries in told for entry in entries])
        return 0
    for source, entries in zip(location.sources, told, strict=True):
        ctx.ui.data(source.title)
        if not entries:
            ctx.ui.data("  no versions")
        for entry in entries:
            _show(entry, ctx)
    return 0


def _told(source: Source, name: str | None, args: Namespace, ctx: Context) -> list[dict[str, Any]]:
    from kbuild.versions.fitting import fitting

    python = chosen_python(args.python, ctx)
    found = []
    for chosen in (name,) if name else source.names()[::-1]:
        version = source.version(chosen)
        fits = fitting(version.variants, python, ctx.runner)
        found.append(_object(source, version, fits))
    return found


def _object(source: Source, version: Version, fits: Fitting) -> dict[str, Any]:
    dates = version.dates()
    return {
        "kernel": version.kernel,
        "where": source.title,
        "version": version.name,
        "date": _date(max(dates.values(), default=None)),
        "size": version.size(),
        "fits": fits.chosen,
        "fits_unknown": fits.unknown or None,
        "variants": [_variant(name, version, fits, dates) for name in version.variants],
    }


def _variant(
    name: str, version: Version, fits: Fitting, dates: Mapping[str, datetime]
) -> dict[str, Any]:
    return {
        "variant": name,
        "size": version.size(name),
        "date": _date(dates.get(name)),
        "here": None if fits.unknown else name not in fits.refused,
        "reason": fits.refused.get(name),
        "word": fits.word(name),
    }


def _show(told: Mapping[str, Any], ctx: Context) -> None:
    from kbuild.hub.difference import size_in_words

    variants = told["variants"]
    day = f", {told['date'][:10]}" if told["date"] else ""
    count = f"{len(variants)} variant{'s' * (len(variants) != 1)}"
    heading = f"{told['version']}{day}: {count}, {size_in_words(told['size'])}"
    ctx.ui.data(f"\n{ctx.ui.painted(heading, 'bold')}")
    if told["fits_unknown"]:
        ctx.ui.warn(told["fits_unknown"])
    rows = [
        (entry["variant"], size_in_words(entry["size"]), (entry["date"] or "-")[:10], entry["word"])
        for entry in variants
    ]
    if rows:
        ctx.ui.table(("variant", "size", "date", "this machine"), rows)


def _date(found: datetime | None) -> str | None:
    return found.isoformat() if found else None
