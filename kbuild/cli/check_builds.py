"""`kbuild check-builds`: do built variants keep their promises."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.answer import Answer, respond
from kbuild.cli.built import add_load, add_python, add_variant
from kbuild.cli.checking import (
    add_checks,
    add_limits,
    add_no_load,
    list_checks,
    shown_progress,
    wanted_of,
    wants_sizes,
)
from kbuild.cli.context import Context
from kbuild.cli.outputs import examinations, terms_of
from kbuild.cli.parser import add_json
from kbuild.cli.targets import add_targets, targets_of


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_targets(parser)
    add_variant(parser)
    add_python(parser, "loads the kernels")
    add_load(parser)
    add_no_load(parser)
    add_limits(parser)
    add_checks(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Exit code 6 when a variant breaks a promise."""
    wanted = wanted_of(args, slow=not args.no_load)
    if args.list:
        return list_checks(wanted, ctx, as_json=args.json)
    terms = terms_of(args, wanted, ctx)
    with targets_of(args, ctx) as targets, shown_progress(ctx):
        answers = [Answer(t, examinations(t, terms.on(t, args))) for t in targets]
        return respond(answers, ctx, as_json=args.json, sizes=wants_sizes(args))
