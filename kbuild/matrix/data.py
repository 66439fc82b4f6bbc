"""`versions.toml` as values: one `Entry` per Torch release, backend version and system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kbuild.variant import System
from kbuild.version import Version


@dataclass(frozen=True)
class Entry:
    """One environment that a kernel can be built for and tested in."""

    torch: Version
    backend: str
    backend_version: Version | None
    system: System
    tvm_ffi: Version | None
    default: bool
    """Part of a plain build; the others must be named."""


@cache
def entries() -> tuple[Entry, ...]:
    """The whole matrix, in the order of the file."""
    import tomli

    text = resources.files("kbuild.matrix").joinpath("versions.toml").read_text("utf-8")
    return tuple(_entries_of(tomli.loads(text)))


def _entries_of(data: Mapping[str, Any]) -> Iterator[Entry]:
    for release in data["torch"]:
        for build in release["builds"]:
            for version in build.get("versions", [None]):
                for system in build["systems"]:
                    yield Entry(
                        torch=Version.parse(release["version"]),
                        backend=build["backend"],
                        backend_version=Version.parse(version) if version else None,
                        system=System.parse(system),
                        tvm_ffi=Version.parse(build["tvm-ffi"]) if "tvm-ffi" in build else None,
                        default=release["default"],
                    )
