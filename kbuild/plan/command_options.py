"""Options of commands: fields of a dataclass that declare their flags (`option`).

The parser, the help, the validation, and what builds by Nix refuse follow from these fields.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kbuild.plan.project import Project
    from kbuild.system.services import Services

T = TypeVar("T")
_METADATA = "option"


class Flag:
    """One flag; `settings` are keywords of `ArgumentParser.add_argument`."""

    def __init__(
        self, *names: str, variable: str = "", default: Any = None, **settings: Any
    ) -> None:
        """`variable` names an environment variable that comes before `default`."""
        self.names, self.settings = names, settings
        self._variable, self._default = variable, default
        if settings.get("action") == "append":
            self._default = []
        elif settings.get("action") == "store_true":
            self._default = False

    @property
    def long(self) -> str:
        """Long form of the flag: `--time-budget`."""
        return self.names[-1]

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments."""
        return self.long.lstrip("-").replace("-", "_")

    @property
    def default(self) -> Any:
        """Value of the attribute if the flag is not given."""
        return os.environ.get(self._variable) or self._default


@dataclass(frozen=True)
class CommandOption:
    """The flags of a field on a command line; `option` describes the attributes."""

    flags: Sequence[Flag]
    group: str
    nix: bool
    parse: Callable[[Any], Any] | None
    read: Callable[[Namespace, Services, Any], Any] | None


def option(
    *flags: str | Flag,
    default: Any = None,
    group: str = "",
    nix: bool = False,
    parse: Callable[[Any], Any] | None = None,
    read: Callable[[Namespace, Services, Any], Any] | None = None,
    **settings: Any,
) -> Any:
    """Declare a field of a dataclass that flags of a command line set.

    Args:
        flags: several `Flag`s, which need `read`; or the names of a single flag.
        default: the field's default, or a function (such as `dict`) that makes it.
        group: heading in the help.
        nix: True if builds by Nix have the option as well; others they refuse.
        parse: turns the argument of the single flag into the field's value. It is called before
            the project is read, and raises `UsageError`.
        read: computes the field's value from the parsed arguments, the services and the project
            (None for a command without one), where `parse` cannot.
        settings: keywords of `Flag` for the single flag.
    """
    names = [flag for flag in flags if isinstance(flag, str)]
    several = [flag for flag in flags if isinstance(flag, Flag)]
    if "variable" in settings:  # functions that read the arguments find the default there
        settings["default"] = default
    declared = CommandOption(several or [Flag(*names, **settings)], group, nix, parse, read)
    if settings.get("action") == "store_true":
        default = False
    default_or_factory = {"default_factory" if callable(default) else "default": default}
    return field(**default_or_factory, metadata={_METADATA: declared})


def add_options(parser: ArgumentParser | _ArgumentGroup, options: type[Any], *names: str) -> None:
    """Declare the flags of a dataclass's fields: those of `names`, or of all fields."""
    groups: dict[str, ArgumentParser | _ArgumentGroup] = {}
    for _, declared in _declared(options, names):
        if declared.group not in groups:
            grouped = bool(declared.group) and isinstance(parser, ArgumentParser)
            groups[declared.group] = (
                parser.add_argument_group(declared.group) if grouped else parser
            )
        for flag in declared.flags:
            settings = flag.settings | {"default": flag.default}
            groups[declared.group].add_argument(*flag.names, **settings)


def validate_options(args: Namespace, options: type[Any], *names: str) -> None:
    """Call `parse` of each option, so that a wrong value is an error before a project is read.

    Raises:
        UsageError: a value is not valid.
    """
    for _, declared in _declared(options, names):
        _parsed(args, declared)


def read_options(
    args: Namespace,
    services: Services,
    project: Project | None,
    options: type[T],
    *names: str,
    **known: Any,
) -> T:
    """The dataclass with values from the parsed arguments; `known` are fields with other values.

    Raises:
        UsageError: a value is not valid.
        ConfigError: a file of the project that an option reads is wrong.
    """
    values = {}
    for name, declared in _declared(options, names):
        if name in known:
            continue
        if declared.read is not None:
            values[name] = declared.read(args, services, project)
        elif (value := _parsed(args, declared)) is not None:
            values[name] = tuple(value) if isinstance(value, list) else value
    return options(**values, **known)


def flags_refused_by_nix(args: Namespace, options: type[Any]) -> tuple[str, ...]:
    """The flags on the command line that builds by Nix do not have."""
    return tuple(
        flag.long
        for _, declared in _declared(options, ())
        if not declared.nix
        for flag in declared.flags
        if getattr(args, flag.dest) != flag.default
    )


def _declared(options: type[Any], names: Sequence[str]) -> Iterator[tuple[str, CommandOption]]:
    declared: dict[str, Field[Any]] = {field.name: field for field in fields(options)}
    for name in names or declared:
        if _METADATA in declared[name].metadata:
            yield name, declared[name].metadata[_METADATA]


def _parsed(args: Namespace, declared: CommandOption) -> Any:
    """The value of the single flag; None where it is not given, or the option has several."""
    if len(declared.flags) != 1:
        return None
    value = getattr(args, declared.flags[0].dest)
    return declared.parse(value) if declared.parse and value is not None else value
