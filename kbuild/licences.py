"""Licences of others' code that becomes part of a kernel: what is asked of its author, and when.

A variant's `metadata.json` says under its toolchain's versions what was linked in: the entry is
called `license NAME`. Such a variant is published by an author who accepts that licence, in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

VARIABLE = "KBUILD_ACCEPT_LICENSE"
"""Names of licences that the user accepts, separated by commas."""
_ENTRY = "license "


@dataclass(frozen=True)
class Licence:
    """A licence by the name that `--accept-license` takes."""

    name: str
    title: str
    text: str
    """Where it can be read."""


LICENCES = {
    licence.name: licence
    for licence in (
        Licence(
            "nvidia-cutlass-dsl",
            "NVIDIA's Software License Agreement for the CUTLASS DSL",
            "https://docs.nvidia.com/cutlass/latest/media/docs/pythonDSL/license.html",
        ),
    )
}


def entry_of(name: str) -> str:
    """What the entry of a licence is called in `metadata.json`."""
    return f"{_ENTRY}{name}"


def licensed_parts(versions: Mapping[str, str]) -> dict[str, str]:
    """Name of a licence -> what is linked in under it.

    Args:
        versions: of a variant's toolchain, as `metadata.json` has them.
    """
    return {
        name.removeprefix(_ENTRY): what
        for name, what in versions.items()
        if name.startswith(_ENTRY)
    }


def accepted(given: Iterable[str], environ: Mapping[str, str]) -> frozenset[str]:
    """The licences that a user accepts: by the option, or by the variable."""
    named = (name.strip() for name in environ.get(VARIABLE, "").split(","))
    return frozenset(name for name in (*named, *given) if name)
