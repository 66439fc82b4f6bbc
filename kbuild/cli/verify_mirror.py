"""`kbuild verify-mirror`: whether a mirror has every byte that was published into it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbuild.cli.context import Context
from kbuild.cli.locations import locate
from kbuild.cli.parser import add_json
from kbuild.errors import CheckError, UsageError

if TYPE_CHECKING:
    from kbuild.mirror.verify import Verdict


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "mirror",
        metavar="MIRROR",
        help="a mirror's folder or address; with /OWNER/NAME or /OWNER/NAME@VERSION a part of it",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Read everything; exit code 6 when something is not as it was published."""
    verdicts = tuple(_verdicts(args, ctx))
    if args.json:
        ctx.ui.data_json([_object(verdict) for verdict in verdicts])
    else:
        ctx.ui.table(("version", "state", "files", "size"), [_row(v) for v in verdicts])
    for verdict in verdicts:
        if not verdict.is_listed:
            words = "is not listed: files that nobody published would not be found"
            ctx.ui.warn(f"{verdict.place} {words}")
        for fault in verdict.faults:
            ctx.ui.error(CheckError(f"{verdict.place}: {fault}", ()))
    return CheckError.code if any(verdict.faults for verdict in verdicts) else 0


def _verdicts(args: Namespace, ctx: Context) -> Iterator[Verdict]:
    from kbuild.cli.locations import patience_of
    from kbuild.mirror.places import place_of
    from kbuild.mirror.verify import verify
    from kbuild.versions.sources import InMirror

    location = locate(args.mirror, ctx)
    for source in location.sources:
        if not isinstance(source, InMirror):
            hint = "`kbuild verify` checks signatures of built variants"
            raise UsageError(f"`{location.text}` is no mirror", hint=hint)
        for name in (location.name,) if location.name else source.names():
            ctx.ui.detail(f"reading {source.title}@{name}")
            yield verify(source.store, place_of(source.repo, name), patience_of(ctx))


def _row(verdict: Verdict) -> tuple[str, ...]:
    from kbuild.hub.difference import size_in_words

    state = "damaged" if verdict.faults else "ok"
    return str(verdict.place), state, str(verdict.files), size_in_words(verdict.size)


def _object(verdict: Verdict) -> dict[str, Any]:
    return {
        "kernel": verdict.place.repo.id,
        "version": verdict.place.branch,
        "files": verdict.files,
        "size": verdict.size,
        "faults": list(verdict.faults),
    }
