"""The build matrix as data: `versions.toml` is the one place to add a Torch release.

`archs/*.toml` hold what each toolkit release can target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kbuild.project.variant import System
from kbuild.system.version import Version


@dataclass(frozen=True)
class MatrixEntry:
    """One environment that a kernel can be built for and tested in."""

    torch: Version
    backend: str
    backend_version: Version | None
    system: System
    tvm_ffi: Version | None
    default: bool
    """Part of a plain build; the others must be named."""


@cache
def matrix_entries(path: Path | None = None) -> tuple[MatrixEntry, ...]:
    """The matrix of kbuild's own backends, or that of a file at `path`, in the file's order."""
    import tomli

    own = resources.files("kbuild.project.matrix") / "versions.toml"
    return tuple(_expand_entries(tomli.loads((path or own).read_text("utf-8"))))


def _expand_entries(data: Mapping[str, Any]) -> Iterator[MatrixEntry]:
    for release in data["torch"]:
        for build in release["builds"]:
            for version in build.get("versions", [None]):
                for system in build["systems"]:
                    yield MatrixEntry(
                        torch=Version.parse(release["version"]),
                        backend=build["backend"],
                        backend_version=Version.parse(version) if version else None,
                        system=System.parse(system),
                        tvm_ffi=Version.parse(build["tvm-ffi"]) if "tvm-ffi" in build else None,
                        default=release["default"],
                    )


@dataclass(frozen=True)
class ArchTable:
    """The archs of one toolkit."""

    targets: tuple[str, ...]
    """Everything it can target."""
    default: tuple[str, ...]
    """Archs of a kernel that names none."""


@cache
def read_arch_file(name: str, path: Path | None = None) -> Mapping[str, Any]:
    """One file of `archs/`, by its name without the suffix, or the file at `path`."""
    import tomli

    own = resources.files("kbuild.project.matrix") / "archs" / f"{name}.toml"
    return tomli.loads((path or own).read_text("utf-8"))


def arch_entry(
    backend: str, toolkit: Version | None, path: Path | None = None
) -> Mapping[str, Any]:
    """The entry of a toolkit release: the newest that is not newer than it.

    Args:
        backend: name of the file and of its array of tables.
        toolkit: None stands for the newest release.
        path: the file, where it is not one of `archs/`.

    Raises:
        ValueError: the release is older than every entry.
    """
    entries = sorted(
        read_arch_file(backend, path)[backend], key=lambda entry: Version.parse(entry["since"])
    )
    if toolkit is None:
        return dict(entries[-1])
    fitting = [entry for entry in entries if Version.parse(entry["since"]) <= toolkit]
    if not fitting:
        raise ValueError(f"{toolkit} is older than {entries[0]['since']}, the oldest one known")
    return dict(fitting[-1])


def arch_table(backend: str, toolkit: Version | None, path: Path | None = None) -> ArchTable:
    """Targets and defaults of a backend that has archs; arguments and errors of `arch_entry`."""
    entry = arch_entry(backend, toolkit, path)
    return ArchTable(tuple(entry["targets"]), tuple(entry["default"]))


def compatible_arch_chains(backend: str) -> tuple[tuple[str, ...], ...]:
    """Archs of which each one's machine code also runs on those after it."""
    return tuple(tuple(chain) for chain in read_arch_file(backend).get("chains", ()))


@cache
def known_archs(backend: str, path: Path | None = None) -> tuple[str, ...]:
    """Archs of all GPUs that the file of a backend knows; arguments of `arch_entry`."""
    data = read_arch_file(backend, path)
    targets = (target for entry in data[backend] for target in entry["targets"])
    return tuple(dict.fromkeys((*targets, *data.get("other", ()))))


def arch_order(arch: str) -> list[tuple[int, str]]:
    """Sort key: `7.5` before `10.0`, and `gfx942` before `gfx1030`."""
    return [(int(number or 0), text) for number, text in re.findall(r"(\d+)|(\D+)", arch)]


def arch_of_gpu(device: str, backend: str | None = None) -> str | None:
    """The arch of a GPU by its marketing name, of one backend or of any; None if it is unknown."""
    table = read_arch_file("gpus")
    archs = (
        arch
        for owner, gpus in table.items()
        if backend in {None, owner}
        for name, arch in gpus.items()
        if _is_part(name, device)
    )
    return next(archs, None)


def _is_part(name: str, device: str) -> bool:
    """`L4` is no part of `NVIDIA L40S`, but `RTX 40` is one of `RTX 4090`."""
    at = device.lower().find(name.lower())
    if at < 0 or (at > 0 and device[at - 1].isalnum()):
        return False
    after = device[at + len(name) :]
    return not after[:1].isdigit() or " " in name


def deployment_target(backend: str) -> str:
    """The oldest macOS release that the backend's builds load on."""
    targets = read_arch_file("macos")["deployment-target"]
    return str(targets.get(backend, targets["default"]))
