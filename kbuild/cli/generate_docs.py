"""`kbuild generate-docs`: the reference page of the commands, made from the argument parsers."""

from __future__ import annotations

import re
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.cli import CommandEntry, all_commands
from kbuild.cli.parser import build_parser
from kbuild.system.errors import CheckError
from kbuild.system.services import Services


@dataclass(frozen=True)
class ArgumentDescription:
    """One positional argument or option."""

    name: str
    flags: tuple[str, ...]
    """`-q`, `--quiet`; empty for positional arguments."""
    metavar: str
    """Placeholder of its value; empty for switches."""
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    several: bool = False
    """True when one option takes several values."""

    @property
    def written(self) -> str:
        """The argument in a usage line: `KERNEL_DIR`, `-j, --jobs N`."""
        value = f"{self.metavar}{'...' if self.several else ''}"
        return f"{', '.join(self.flags)} {value}".strip()


@dataclass(frozen=True)
class CommandDescription:
    """The arguments of one command."""

    command: CommandEntry
    arguments: tuple[ArgumentDescription, ...]
    epilog: str

    @property
    def options(self) -> tuple[ArgumentDescription, ...]:
        """The arguments with flags."""
        return tuple(argument for argument in self.arguments if argument.flags)

    @property
    def usage(self) -> str:
        """The command's usage in one line."""
        places = (
            a.metavar if a.required else f"[{a.metavar}]" for a in self.arguments if not a.flags
        )
        rest = " [-- ARGUMENTS...]" if self.epilog else ""
        return " ".join(("kbuild", self.command.name, *places, "[options]")) + rest


def describe_command(command: CommandEntry) -> CommandDescription:
    """The arguments of a command, in the order in which they were declared."""
    parser = build_parser(command)
    actions = parser._actions  # noqa: SLF001 - argparse has no public way to list them
    arguments = tuple(_describe_argument(action) for action in actions if action.help != SUPPRESS)
    return CommandDescription(command, arguments, parser.epilog or "")


def common_options(description: CommandDescription) -> Iterator[ArgumentDescription]:
    """The options that every command has."""
    common = {"help", "quiet", "verbose", "color"}
    return (argument for argument in description.options if argument.name in common)


def _describe_argument(action: Action) -> ArgumentDescription:
    return ArgumentDescription(
        name=action.dest,
        flags=tuple(action.option_strings),
        metavar="" if action.nargs == 0 else _metavar(action),
        help=action.help or "",
        choices=tuple(str(choice) for choice in action.choices or ()),
        required=not action.option_strings and action.nargs != "?",
        several=action.nargs in {"+", "*"},
    )


def _metavar(action: Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    return action.dest.upper()


_COMMANDS_INTRODUCTION = """\
# Commands

<!-- Written by `kbuild generate-docs`; do not edit. -->

`kbuild COMMAND [arguments]`. Data goes to stdout, everything else to stderr. Every command with
a result takes `--json`; a failure is then `{"error": {...}}` on stdout as well. The exit codes are
in [exit-codes.md](exit-codes.md).

`KERNEL_DIR` is the folder that holds `build.toml`. Relative paths start at the current folder.
"""
_SHARED_BY = 3
"""Number of commands that must have an argument before it is explained once for all of them."""
_LARGE = 10
"""Number of arguments at which other commands refer to a command instead of listing them."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "output", nargs="?", type=Path, help="file to write (default: print the page)"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the file is out of date"
    )


def execute(args: Namespace, ctx: Services) -> int:
    """Write or compare the page."""
    from kbuild.system.files import replace_atomically

    text = commands_markdown()
    if args.output is None:
        ctx.ui.data(text)
        return 0
    output = ctx.path(args.output)
    if output.is_file() and output.read_text("utf-8") == text:
        return 0
    if args.check:
        hint = f"kbuild generate-docs {args.output}"
        raise CheckError(f"`{args.output}` is stale", (), hint=hint)
    replace_atomically(output, text.encode())
    ctx.ui.say(f"wrote {args.output}")
    return 0


def commands_markdown() -> str:
    """The whole page."""
    descriptions = [describe_command(command) for command in all_commands()]
    contained = {one.command.name: contained_in(one, descriptions) for one in descriptions}
    common = {argument.name for argument in common_options(descriptions[0])}
    uses = Counter(
        argument
        for one in descriptions
        if not contained[one.command.name]
        for argument in one.arguments
        if argument.name not in common
    )
    shared = [argument for argument, count in uses.items() if count >= _SHARED_BY]
    parts = [
        _COMMANDS_INTRODUCTION,
        "## Options of every command\n",
        _arguments_table(common_options(descriptions[0])),
        "## Shared arguments\n\nThe commands below name those that they take.\n",
        _arguments_table(shared),
    ]
    group = ""
    for description in descriptions:
        if description.command.group != group:
            group = description.command.group
            parts.append(f"\n## {group}\n")
        others = contained[description.command.name]
        parts.append("\n".join(_command_section(description, shared, others)))
    return "\n".join(parts)


def contained_in(
    description: CommandDescription, descriptions: Iterable[CommandDescription]
) -> list[CommandDescription]:
    """The large commands all of whose arguments this command takes as well."""
    own = set(description.options)
    return [
        other
        for other in descriptions
        if other is not description and len(other.options) > _LARGE and own >= set(other.options)
    ]


def _command_section(
    description: CommandDescription,
    shared: Iterable[ArgumentDescription],
    others: Iterable[CommandDescription],
) -> Iterator[str]:
    command = description.command
    yield f"### {command.name}\n"
    yield f"{command.summary}.\n"
    yield f"```\n{description.usage}\n```\n"
    if description.epilog:
        yield f"{description.epilog}\n"
    common = {argument.name for argument in common_options(description)}
    own = [argument for argument in description.arguments if argument.name not in common]
    if others:
        links = " and of ".join(f"[{one.command.name}](#{one.command.name})" for one in others)
        yield f"It has all options of {links}.\n"
        contained = {argument for other in others for argument in other.options}
        own = [argument for argument in own if argument not in contained]
    names = [a.flags[-1] if a.flags else a.metavar for a in own if a in shared]
    if names:
        yield f"[Shared](#shared-arguments): {', '.join(f'`{name}`' for name in names)}.\n"
    rest = [argument for argument in own if argument not in shared]
    if rest:
        yield _arguments_table(rest)


def _arguments_table(arguments: Iterable[ArgumentDescription]) -> str:
    rows = [f"| `{argument.written}` | {_escape_markup(argument)} |" for argument in arguments]
    return "\n".join(("| argument | meaning |", "|---|---|", *rows, ""))


def _escape_markup(argument: ArgumentDescription) -> str:
    """The help as Markdown: outside of code, no character of it is markup."""
    parts = argument.help.replace("%%", "%").replace("|", "\\|").split("`")
    # Every second part is between backticks, where nothing is escaped.
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)
