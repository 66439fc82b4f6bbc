"""`archs/*.toml` as values: what each release of a toolkit can target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kbuild.version import Version


@dataclass(frozen=True)
class ArchTable:
    """What one toolkit compiles for."""

    targets: tuple[str, ...]
    """Everything it can target."""
    default: tuple[str, ...]
    """What is compiled when a kernel does not say."""


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """One file of `archs/`, by its name without the suffix."""
    import tomli

    path = resources.files("kbuild.matrix") / "archs" / f"{name}.toml"
    return tomli.loads(path.read_text("utf-8"))


def entry_for(backend: str, toolkit: Version | None) -> Mapping[str, Any]:
    """The entry of a toolkit release: the newest that is not newer than it.

    Args:
        backend: name of the file and of its array of tables.
        toolkit: None stands for the newest release.

    Raises:
        ValueError: the release is older than every entry.
    """
    entries = sorted(read_table(backend)[backend], key=lambda entry: Version.parse(entry["since"]))
    if toolkit is None:
        return dict(entries[-1])
    fitting = [entry for entry in entries if Version.parse(entry["since"]) <= toolkit]
    if not fitting:
        raise ValueError(f"{toolkit} is older than {entries[0]['since']}, the oldest one known")
    return dict(fitting[-1])


def arch_table(backend: str, toolkit: Version | None) -> ArchTable:
    """Targets and defaults of a backend that has archs; raises like `entry_for`."""
    entry = entry_for(backend, toolkit)
    return ArchTable(tuple(entry["targets"]), tuple(entry["default"]))


def chains(backend: str) -> tuple[tuple[str, ...], ...]:
    """Archs of which each one's machine code also runs on those after it."""
    return tuple(tuple(chain) for chain in read_table(backend).get("chains", ()))


def deployment_target(backend: str) -> str:
    """The oldest macOS release that the backend's builds load on."""
    targets = read_table("macos")["deployment-target"]
    return str(targets.get(backend, targets["default"]))
