"""Options of commands: fields of a dataclass that say how they are written on a command line.

Parser, help, validation, the driver that an option belongs to and what provenance records of it
follow from the field.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kbuild.plan.project import Project
    from kbuild.system.services import Services

T = TypeVar("T")
_METADATA = "option"


class Flag:
    """One flag, as `ArgumentParser.add_argument` takes it; its default may be a function."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names, self.settings = names, settings
        if settings.get("action") == "append":
            settings.setdefault("default", [])
        elif settings.get("action") == "store_true":
            settings["default"] = False

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
        default = self.settings.get("default")
        return default() if callable(default) else default


@dataclass(frozen=True)
class CommandOption:
    """The flags of a field on a command line."""

    flags: Sequence[Flag]
    group: str = ""
    """Heading in the help."""
    driver: str = "local"
    """The only driver that has it: `local` or `nix`; empty when both have."""
    parse: Callable[[Any], Any] | None = None
    """Value of the single flag -> value of the field; raises `UsageError`, reads no file."""
    read: Callable[[Namespace, Services, Any], Any] | None = None
    """Like `parse`, for values that depend on other arguments, the project or this machine."""
    record: tuple[str, Callable[[Any], Any]] | None = None
    """Key in the provenance, and the value there; None when it cannot change the result."""


def option(
    *flags: str | Flag,
    value: Any = None,
    group: str = "",
    driver: str = "local",
    parse: Callable[[Any], Any] | None = None,
    read: Callable[[Namespace, Services, Any], Any] | None = None,
    record: tuple[str, Callable[[Any], Any]] | None = None,
    **settings: Any,
) -> Any:
    """A field of a dataclass, see `CommandOption`; `flags` are several, or names of the only one.

    `value` is the field without flags, or makes it; `settings` are those of the only flag.
    """
    names = [flag for flag in flags if isinstance(flag, str)]
    several = [flag for flag in flags if isinstance(flag, Flag)]
    declared = CommandOption(
        several or [Flag(*names, **settings)], group, driver, parse, read, record
    )
    if settings.get("action") == "store_true":
        value = False
    default = {"default_factory": value} if callable(value) else {"default": value}
    return field(**default, metadata={_METADATA: declared})


def add_options(parser: ArgumentParser | _ArgumentGroup, options: type[Any], *names: str) -> None:
    """Declare the flags of a dataclass's fields: the named ones, or all that have flags."""
    groups: dict[str, ArgumentParser | _ArgumentGroup] = {}
    for _, declared in _declared(options, names):
        if declared.group not in groups:
            grouped = bool(declared.group) and isinstance(parser, ArgumentParser)
            groups[declared.group] = (
                parser.add_argument_group(declared.group) if grouped else parser
            )
        add_flags(groups[declared.group], declared.flags)


def add_flags(parser: ArgumentParser | _ArgumentGroup, flags: Sequence[Flag]) -> None:
    """Declare flags."""
    for flag in flags:
        parser.add_argument(*flag.names, **(flag.settings | {"default": flag.default}))


def validate_options(args: Namespace, options: type[Any], *names: str) -> None:
    """Check the values that can be checked without a project.

    Raises:
        UsageError: a value has no sense.
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
    """The options as parsed arguments say them.

    Raises:
        UsageError: a value has no sense.
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


def given_flags(args: Namespace, options: type[Any], driver: str) -> tuple[str, ...]:
    """The flags on the command line that only one driver has."""
    return tuple(
        flag.long
        for _, declared in _declared(options, ())
        if declared.driver == driver
        for flag in declared.flags
        if getattr(args, flag.dest) != flag.default
    )


def recorded_options(options: Any) -> Mapping[str, Any]:
    """The options that can change the result, as JSON values."""
    return {
        key: value(getattr(options, name))
        for name, declared in _declared(type(options), ())
        if declared.record is not None
        for key, value in [declared.record]
    }


def _declared(options: type[Any], names: Sequence[str]) -> Iterator[tuple[str, CommandOption]]:
    declared: dict[str, Field[Any]] = {field.name: field for field in fields(options)}
    for name in names or declared:
        if _METADATA in declared[name].metadata:
            yield name, declared[name].metadata[_METADATA]


def _parsed(args: Namespace, declared: CommandOption) -> Any:
    """The value of the only flag; None where there is none, or several."""
    if len(declared.flags) != 1:
        return None
    value = getattr(args, declared.flags[0].dest)
    return declared.parse(value) if declared.parse and value is not None else value
