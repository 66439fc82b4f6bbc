"""Runs the command of a command line, and returns its exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild import manual_page
from kbuild.cli import ALIASES, CommandEntry, all_commands, find_command
from kbuild.system.errors import StorageError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace


_ADVICE = {
    "explain": "`kbuild plan --variant NAME` shows how a variant is built, `kbuild doctor` what is "
    f"missing, and {manual_page('reference/checks.md')} what each check means",
    "why": "`kbuild list-variants --reasons` says which variants cannot be built here, and why",
    "migrate": "`kbuild check-config --update` rewrites an older build.toml; "
    f"{manual_page('how-to/index.md')} lists how to move from other tools",
    "run": "`kbuild test` runs the project's tests; `python example.py` its example",
    "install": "`kbuild toolchain install` installs toolchains; packages load from the Hub",
    "list": "`kbuild list-variants` lists the project's variants",
    "info": "`kbuild doctor` reports on this machine, `kbuild plan` on the project",
    "prune": "`kbuild cache prune` makes the cache smaller; a project's `.kbuild/` can be deleted",
    "gc": "`kbuild cache prune` makes the cache smaller; a project's `.kbuild/` can be deleted",
    "push": "`kbuild upload` sends variants to the Hub",
    "deploy": "`kbuild upload` sends variants to the Hub",
    "publish": "`kbuild upload` sends variants to the Hub",
    "shell": "`kbuild devshell` opens a shell to build in, with --test one to test in",
    "profile": "`kbuild tune` measures candidates of DSL kernels",
    "lint": "`kbuild check` checks sources, `kbuild check-config` checks build.toml",
    "format": "`kbuild check-config --update` rewrites build.toml in the current edition",
    "setup": "`kbuild init` writes a project, `kbuild toolchain install` installs toolchains",
    "compare": "`kbuild reproduce` builds again and compares the bytes",
}
"""Commands of other tools -> kbuild's."""


def run(argv: Sequence[str]) -> int:
    """Parse the command line and execute its command.

    Raises:
        KbuildError: of whatever kind the command raises; `UsageError` for a bad command line.
    """
    if any("\0" in argument for argument in argv):
        raise UsageError(
            "an argument contains a NUL character", hint="file names and options cannot contain one"
        )
    command = _find_command(argv[0])
    try:
        args = _parse(command, argv[1:])
    except SystemExit as done:  # argparse leaves this way after printing help
        sys.stdout.flush()
        return int(done.code or 0)
    from kbuild.system.cache import report_trouble_to
    from kbuild.system.cache_folder import cache_folder, validate_cache_owner
    from kbuild.system.file_state import file_clock
    from kbuild.system.processes import LocalRunner
    from kbuild.system.services import Services
    from kbuild.system.ui import RecordingUi, Ui

    ui = (RecordingUi if _is_recorded(command, args) else Ui)(
        color=args.color, verbosity=args.verbose - args.quiet
    )
    since, runner = file_clock(), LocalRunner()
    try:
        cwd = Path.cwd()
    except FileNotFoundError as error:
        hint = "change into a folder that exists"
        raise StorageError("the current folder no longer exists", hint=hint) from error
    # The system tells the old mask only when it gets a new one.
    os.umask(os.umask(0o077) | 0o002)  # nothing of kbuild's is everybody's to write
    report_trouble_to(ui.warn)
    cache = cache_folder(os.environ)
    validate_cache_owner(cache, os.environ)
    context = Services(runner, ui, cache, cwd)
    execute = getattr(importlib.import_module(command.module), command.execute)
    code = int(execute(args, context))
    context.ui.flush()
    # What a program answered about this machine may be another answer next time.
    if isinstance(ui, RecordingUi) and code == 0 and runner.programs <= {"git"}:
        from kbuild.cli.unchanged import record_build

        record_build(argv, ui.printed, context.folder(args.kernel_dir), cache, since)
    return code


def _is_recorded(command: CommandEntry, args: Namespace) -> bool:
    """True for a build that depends on nothing but files which kbuild can list."""
    if command.module != "kbuild.cli.build" or args.with_source:
        return False
    from kbuild.pipeline.toolchains import TOOLCHAIN_NAMES

    return args.toolchain in (None, *TOOLCHAIN_NAMES)


def _find_command(name: str) -> CommandEntry:
    command = find_command(name)
    if command is not None:
        return command
    if name.startswith("-"):
        raise UsageError(
            f"`{name}` comes before a command",
            hint="write the command first: kbuild COMMAND [arguments]",
        )
    raise UsageError(f"there is no command `{name}`", hint=_advice_for(name))


def _advice_for(name: str) -> str:
    """The command that was probably meant."""
    from kbuild.project.config.issue import closest

    if name.lower() in _ADVICE:
        return _ADVICE[name.lower()]
    known = [command.name for command in all_commands()]
    meant = closest(name, [*known, *_ADVICE, *ALIASES])
    if meant in _ADVICE:
        return _ADVICE[meant]
    return f"did you mean `{meant}`?" if meant else "`kbuild --help` lists the commands"


def _parse(command: CommandEntry, arguments: Sequence[str]) -> Namespace:
    """The command's arguments; what follows `--` goes to `rest` of the commands that have it."""
    from kbuild.cli.parser import build_parser

    own, rest = _split_at_dashes(arguments)
    args = build_parser(command).parse_args(own)
    if rest:
        if not hasattr(args, "rest"):
            raise UsageError(f"`kbuild {command.name}` takes nothing after `--`")
        args.rest = rest
    return args


def _split_at_dashes(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if "--" not in arguments:
        return tuple(arguments), ()
    at = arguments.index("--")
    return tuple(arguments[:at]), tuple(arguments[at + 1 :])
