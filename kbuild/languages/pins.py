"""What `toolchain` pins, and the pins that a release of a DSL brings along."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def pinned_version(distribution: str, pins: Sequence[str], form: str) -> str | None:
    """The exact release of a distribution that is pinned.

    Args:
        distribution: its name.
        pins: what `toolchain` says: `tilelang==0.1.15`.
        form: a regular expression of the versions that it has.
    """
    pin = re.compile(f"{re.escape(distribution)}==({form})")
    matches = (pin.fullmatch(one.replace(" ", "")) for one in pins)
    return next((match[1] for match in matches if match), None)


def with_companions(
    distribution: str, pins: Sequence[str], companions: Iterable[str]
) -> tuple[str, ...]:
    """Every distribution of an environment, the DSL first.

    Args:
        distribution: the DSL's; it is among `pins`.
        pins: of the section; they take the place of companions.
        companions: what the release needs beside itself, each at an exact version.
    """
    own = {_name(pin): pin.replace(" ", "") for pin in pins}
    first = own.pop(distribution)
    return (first, *({**{_name(pin): pin for pin in companions}, **own}).values())


def _name(pin: str) -> str:
    return pin.partition("==")[0].strip().lower().replace("_", "-")
