"""The argument parser of one command, and the arguments that commands share."""

from __future__ import annotations

import importlib
import re
from argparse import ArgumentParser
from pathlib import Path
from typing import NoReturn

from kbuild.cli import CommandEntry
from kbuild.system.errors import UsageError

COLORS = ("auto", "always", "never")


_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")


class CommandParser(ArgumentParser):
    """Raises what `argparse` would print."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a `UsageError`."""
        # What was probably meant by the choice or the option that `argparse` does not know.
        from kbuild.project.config.issue import closest

        choice = _CHOICE.search(message)
        if choice is not None:
            known, unknown = re.findall(r"[\w.-]+", choice["known"]), [choice["given"]]
        else:
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            unknown = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
        close = closest(unknown[0], known) if unknown else None
        hint = f"did you mean `{close}`?" if close else f"`{self.prog} --help` lists the arguments"
        raise UsageError(message, hint=hint)


def build_parser(command: CommandEntry) -> CommandParser:
    """The command's parser, with the options that every command has."""
    parser = CommandParser(
        prog=f"kbuild {command.name}", description=f"{command.summary}.", allow_abbrev=False
    )
    getattr(importlib.import_module(command.module), command.configure)(parser)
    common = parser.add_argument_group("options of every command")
    common.add_argument(
        "-q", "--quiet", action="count", default=0, help="print less; -qq prints only errors"
    )
    common.add_argument("-v", "--verbose", action="count", default=0, help="print more")
    common.add_argument(
        "--color", choices=COLORS, default="auto", metavar="WHEN", help="auto, always or never"
    )
    return parser


def add_kernel_dir(parser: ArgumentParser) -> None:
    """Declare the project's folder."""
    parser.add_argument(
        "kernel_dir", nargs="?", type=Path, help="project folder (default: the current folder)"
    )


def add_json(parser: ArgumentParser) -> None:
    """Declare `--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
