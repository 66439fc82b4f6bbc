"""`kbuild check-abi`: what libraries ask of the machine that loads them.

The part of `check-builds` that looks at bytes: no Python is started and nothing is loaded. A
library that needs a newer Linux than the policy allows is an error here, whoever built it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.answer import Answer, respond
from kbuild.cli.built import add_variant
from kbuild.cli.checking import add_checks, add_limits, list_checks, wanted_of
from kbuild.cli.context import Context
from kbuild.cli.outputs import examinations, terms_of
from kbuild.cli.parser import add_json
from kbuild.cli.targets import add_targets, targets_of


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_targets(parser)
    add_variant(parser)
    add_limits(parser)
    add_checks(parser)
    add_json(parser)
    parser.set_defaults(python=None)


def execute(args: Namespace, ctx: Context) -> int:
    """Exit code 6 when a library breaks a promise."""
    from kbuild.checks.examination import LIBRARY_GROUPS

    wanted = wanted_of(args, groups=LIBRARY_GROUPS, slow=False)
    if args.list:
        return list_checks(wanted, ctx, as_json=args.json)
    terms = terms_of(args, wanted, ctx, portable=True)
    with targets_of(args, ctx) as targets:
        answers = [Answer(t, examinations(t, terms.on(t, args))) for t in targets]
        return respond(answers, ctx, as_json=args.json)
