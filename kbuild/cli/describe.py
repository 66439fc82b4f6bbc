"""What a verb's parser declares, as values: for the reference page and the completion scripts."""

from __future__ import annotations

from argparse import SUPPRESS, Action
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.cli import Verb
from kbuild.cli.parser import parser_of


@dataclass(frozen=True)
class Argument:
    """One positional argument or option."""

    name: str
    """Destination, e.g. `kernel_dir`."""
    flags: tuple[str, ...]
    """`-q`, `--quiet`; empty for positional arguments."""
    metavar: str
    """How its value is written; empty for switches."""
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    several: bool = False
    """True when one option takes several values."""
    is_path: bool = False

    @property
    def takes_value(self) -> bool:
        """False for switches."""
        return bool(self.metavar)

    @property
    def written(self) -> str:
        """As a usage line writes it: `KERNEL_DIR`, `-j, --jobs N`."""
        value = f"{self.metavar}{'...' if self.several else ''}"
        return f"{', '.join(self.flags)} {value}".strip()


@dataclass(frozen=True)
class Description:
    """The arguments of one verb."""

    verb: Verb
    arguments: tuple[Argument, ...]
    epilog: str

    @property
    def options(self) -> tuple[Argument, ...]:
        """The arguments with flags."""
        return tuple(argument for argument in self.arguments if argument.flags)

    @property
    def positionals(self) -> tuple[Argument, ...]:
        """The arguments without flags."""
        return tuple(argument for argument in self.arguments if not argument.flags)

    @property
    def usage(self) -> str:
        """The verb's usage in one line."""
        places = (a.metavar if a.required else f"[{a.metavar}]" for a in self.positionals)
        rest = " [-- ARGUMENTS...]" if self.epilog else ""
        return " ".join(("kbuild", self.verb.name, *places, "[options]")) + rest


def describe(verb: Verb) -> Description:
    """The arguments of a verb, in the order in which they were declared."""
    parser = parser_of(verb)
    actions = parser._actions  # noqa: SLF001 - argparse has no public way to list them
    arguments = tuple(_argument(action) for action in actions if action.help != SUPPRESS)
    return Description(verb, arguments, parser.epilog or "")


def of_every_verb(description: Description) -> Iterator[Argument]:
    """The options that every verb has."""
    common = {"help", "quiet", "verbose", "color"}
    return (argument for argument in description.options if argument.name in common)


def _argument(action: Action) -> Argument:
    return Argument(
        name=action.dest,
        flags=tuple(action.option_strings),
        metavar="" if action.nargs == 0 else _metavar(action),
        help=action.help or "",
        choices=tuple(str(choice) for choice in action.choices or ()),
        required=not action.option_strings and action.nargs != "?",
        several=action.nargs in {"+", "*"},
        is_path=action.type is Path,
    )


def _metavar(action: Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    return action.dest.upper()
