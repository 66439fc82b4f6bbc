"""`kbuild diff`: what differs between two versions of a kernel, published or just built."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.built import add_variant
from kbuild.cli.context import Context
from kbuild.cli.locations import HELP, locate
from kbuild.cli.parser import add_json

_DIFFERENT = 1


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("old", metavar="OLD", help=f"{HELP}; @REVISION names a version")
    parser.add_argument(
        "new", nargs="?", default=".", metavar="NEW", help="the same (default: what is built here)"
    )
    add_variant(parser)
    parser.add_argument(
        "--exit-code", action="store_true", help="end with 1 when something differs, as git does"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Say what differs; 0 also when something does, unless asked otherwise."""
    from kbuild.versions.compare import differences
    from kbuild.versions.text import in_lines

    old, before = locate(args.old, ctx, args.variant).one()
    new, after = locate(args.new, ctx, args.variant).one()
    told = differences(old.only(args.variant), new.only(args.variant), titles=(before, after))
    if args.json:
        ctx.ui.data_json(told.to_json())
    else:
        ctx.ui.data("\n".join(in_lines(told, everything=ctx.ui.verbosity > 0)))
    return _DIFFERENT if told and args.exit_code else 0
