"""`kbuild versions`: the versions of a kernel, their variants, and which of them fits here."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
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
    found = [
        (source, source.version(name))
        for source in location.sources
        for name in ((location.name,) if location.name else source.names()[::-1])
    ]
    told = _told(found, args, ctx)
    if args.json:
        ctx.ui.data_json(told)
        return 0
    for source in location.sources:
        ctx.ui.data(source.title)
        entries = [entry for entry in told if entry["where"] == source.title]
        if not entries:
            ctx.ui.data("  no versions")
        for entry in entries:
            _show(entry, ctx)
    _warn(told, ctx)
    return 0


def _told(
    found: Sequence[tuple[Source, Version]], args: Namespace, ctx: Context
) -> list[dict[str, Any]]:
    from kbuild.versions.fitting import fittings

    python = chosen_python(args.python, ctx)
    fits = fittings([version.variants for _, version in found], python, ctx.runner)
    return [_object(*pair, fit) for pair, fit in zip(found, fits, strict=True)]


def _warn(told: Sequence[Mapping[str, Any]], ctx: Context) -> None:
    for reason in {entry["fits_unknown"] for entry in told} - {None}:
        ctx.ui.warn(reason)


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
    rows = [
        (entry["variant"], size_in_words(entry["size"]), (entry["date"] or "-")[:10], entry["word"])
        for entry in variants
    ]
    if rows:
        ctx.ui.table(("variant", "size", "date", "this machine"), rows)


def _date(found: datetime | None) -> str | None:
    return found.isoformat() if found else None
