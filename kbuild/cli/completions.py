"""`kbuild completions`: the completion script of a shell, which shtab makes from the parsers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from kbuild.cli import all_commands
from kbuild.cli.parser import build_parser
from kbuild.system.services import Services

_VARIANTS = "kbuild list-variants -qq 2>/dev/null"
"""Prints the variants of the project in the current folder."""
_BACKENDS = ("backend", "backends")
SHELLS = ("bash", "fish", "zsh")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="bash, fish or zsh")


def execute(args: Namespace, ctx: Services) -> int:
    """Print the script."""
    ctx.ui.data(completion_script(args.shell))
    return 0


def completion_script(shell: str) -> str:
    """The script that completes kbuild's commands, their options and values in a shell."""
    import shtab

    from kbuild.backends import BACKENDS

    root = ArgumentParser("kbuild", description="Package compute kernels.")
    root.add_argument("-V", "--version", action="store_true", help="print kbuild's version")
    subparsers = root.add_subparsers()
    for command in all_commands():
        parser = subparsers.add_parser(
            command.name, help=command.summary, parents=[build_parser(command)], add_help=False
        )
        action: Any
        for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
            if action.dest == "variant":
                action.complete = shtab.cmd(_VARIANTS)
            elif action.dest in _BACKENDS and action.choices is None:
                action.choices = BACKENDS.names()
            elif action.type is Path or not (action.option_strings or action.choices):
                action.complete = shtab.FILE
    return str(shtab.complete(root, shell))
