"""A `[kernel.*]` section in a DSL: its language, its toolchain, its ops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kbuild.config.issue import Issue
from kbuild.config.languages import OpSection
from kbuild.config.suggest import one_of
from kbuild.config.violations import table_issues
from kbuild.languages.spec.dialects import DIALECTS, Dialect
from kbuild.languages.spec.op import Owner, read_op
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import OpSpec

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.+!_-]*)")


@dataclass(frozen=True)
class Reading:
    """What a section says, and everything that is wrong with it."""

    ops: tuple[OpSpec, ...]
    """The ops without errors."""
    issues: tuple[Issue, ...]


def read_section(name: str, section: Mapping[str, Any]) -> Reading:
    """Read a section as TOML gives it.

    Args:
        name: the kernel's name.
        section: the `[kernel.<name>]` table; `backend` and the like are not looked at.
    """
    place = Place(("kernel", name))
    dialect = _dialect(section.get("language"), place.at("language"))
    toolchain = _toolchain(section.get("toolchain"), dialect, place)
    sources = tuple(item for item in _items(section.get("src")) if isinstance(item, str))
    if not sources:
        place.at("src").error("names no Python source", "the file with the kernel functions first")
    owner = Owner(name, dialect or Dialect("", ""), toolchain, sources)
    ops = tuple(_ops(section.get("op"), owner, place.at("op")))
    # What follows from an unknown language is not known.
    return Reading(ops if dialect is not None else (), tuple(place.issues))


def _dialect(value: Any, place: Place) -> Dialect | None:
    if isinstance(value, str) and value in DIALECTS:
        return DIALECTS[value]
    if value is None:
        place.error("is missing", one_of("", DIALECTS))
    else:
        place.error(f"`{value}` is not a language", one_of(str(value), DIALECTS))
    return None


def _toolchain(value: Any, dialect: Dialect | None, place: Place) -> tuple[str, ...]:
    where = place.at("toolchain")
    pins = [value] if isinstance(value, str) else _items(value)
    names = []
    for index, pin in enumerate(pins):
        match = _PIN.fullmatch(pin) if isinstance(pin, str) else None
        if match is None:
            spot = where.at(index) if isinstance(value, list) else where
            spot.error(f"`{pin}` is not an exact version", "e.g. `triton==3.9.0`")
        else:
            names.append(match["name"].lower().replace("_", "-"))
    wanted = (dialect.distribution, *dialect.also) if dialect is not None else ()
    for name in wanted if len(names) == len(pins) else ():
        if name not in names:
            hint = _pinned(name, wanted)
            where.error(f"does not say which version of `{name}` compiles this", hint)
    return tuple(str(pin) for pin in pins)


def _pinned(name: str, wanted: Sequence[str]) -> str:
    if len(wanted) == 1:
        return f'pin it: `toolchain = "{name}==<version>"`'
    pins = ", ".join(f'"{one}==<version>"' for one in wanted)
    return f"pin both: `toolchain = [{pins}]`"


def _ops(tables: Any, owner: Owner, place: Place) -> Iterator[OpSpec]:
    if not _items(tables):
        place.error("describes no op", f"add a `[[kernel.{owner.kernel}.op]]` table")
    seen: set[str] = set()
    for index, table in enumerate(_items(tables)):
        where = place.at(index)
        try:
            section = OpSection.model_validate(table)
        except ValidationError as error:
            place.issues.extend(table_issues(error, OpSection, where.path))
            continue
        spec = read_op(section, owner, where)
        if spec is not None and spec.name in seen:
            where.at("schema").error(f"the op `{spec.name}` is described twice")
        elif spec is not None:
            seen.add(spec.name)
            yield spec


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
