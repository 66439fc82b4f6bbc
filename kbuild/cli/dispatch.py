"""From a command line to a verb's exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli import COMMANDS, CommandEntry, find_command
from kbuild.errors import StorageError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from kbuild.cli.context import Context


def run(argv: Sequence[str]) -> int:
    """Parse the command line and execute its verb.

    Raises:
        KbuildError: of whatever kind the verb raises; `UsageError` for a bad command line.
    """
    if not argv:
        raise UsageError("no verb was given", hint="`kbuild --help` lists the verbs")
    if any("\0" in argument for argument in argv):
        raise UsageError("an argument has a NUL character", hint="no file and no name can have one")
    verb = _find_command(argv[0])
    try:
        args = _parse(verb, argv[1:])
    except SystemExit as done:  # argparse leaves this way after printing help
        sys.stdout.flush()
        return int(done.code or 0)
    context = _create_context(args)
    execute = getattr(importlib.import_module(verb.module), verb.execute)
    code = int(execute(args, context))
    context.ui.flush()
    return code


def _find_command(name: str) -> CommandEntry:
    verb = find_command(name)
    if verb is not None:
        return verb
    if name.startswith("-"):
        raise UsageError(
            f"`{name}` comes before a verb", hint="write the verb first: kbuild VERB [arguments]"
        )
    from difflib import get_close_matches

    close = get_close_matches(name, [verb.name for verb in COMMANDS], n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`kbuild --help` lists the verbs"
    raise UsageError(f"there is no verb `{name}`", hint=hint)


def _parse(verb: CommandEntry, arguments: Sequence[str]) -> Namespace:
    """The verb's arguments; what follows `--` goes to `rest` of the verbs that have it."""
    from kbuild.cli.parser import build_parser

    own, rest = _split_at_dashes(arguments)
    args = build_parser(verb).parse_args(own)
    if rest:
        if not hasattr(args, "rest"):
            raise UsageError(f"`kbuild {verb.name}` takes nothing after `--`")
        args.rest = rest
    return args


def _split_at_dashes(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if "--" not in arguments:
        return tuple(arguments), ()
    at = arguments.index("--")
    return tuple(arguments[:at]), tuple(arguments[at + 1 :])


def _create_context(args: Namespace) -> Context:
    from kbuild.cli.context import Context, cache_folder, validate_cache_owner
    from kbuild.runtime.processes import LocalRunner
    from kbuild.ui import Ui

    ui = Ui(color=args.color, verbosity=args.verbose - args.quiet)
    try:
        cwd = Path.cwd()
    except FileNotFoundError as error:
        hint = "change into a folder that exists"
        raise StorageError("the current folder does not exist any more", hint=hint) from error
    os.umask(os.umask(0o077) | 0o002)  # nothing of kbuild's is everybody's to write
    cache = cache_folder(os.environ)
    validate_cache_owner(cache, os.environ)
    return Context(ui, LocalRunner(), cache, cwd)
