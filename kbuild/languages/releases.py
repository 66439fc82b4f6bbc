"""What each release of Triton compiles for, and with which assembler; facts in `releases.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.languages.target import CPU, Target
from kbuild.matrix.data import Entry, entries
from kbuild.version import Version

_FILE = Path(__file__).with_name("releases.toml")
_WARP, _WAVE = 32, 64
"""Threads that go together; the latter on AMD's GPUs for data centres."""
_NEW = (9, 0)
"""The first capability that is assembled by the second of the assemblers."""


@dataclass(frozen=True)
class Release:
    """One release, `major.minor`, or a later one that nothing else is known of."""

    version: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return f"Triton {self.version}"

    def archs(self, flavour: str) -> tuple[str, ...]:
        """Capabilities or gfx names."""
        return tuple(self.facts[flavour])

    def assemblers(self, flavour: str) -> tuple[str, ...]:
        """Names of the ptxas for archs below 9.0, and of that from 9.0 on; none for AMD."""
        return tuple(self.facts["assemblers"].get(flavour, ()))

    def assembler(self, flavour: str, target: Target) -> str | None:
        """Name of the ptxas for one target."""
        names, capability = self.assemblers(flavour), target.capability
        if not names or capability is None:
            return None
        return names[capability.base >= _NEW]


@cache
def release_of(version: str) -> Release:
    """The facts that hold for a version `3.9.0`: those of the newest release up to it."""
    wanted = Version.parse(version)
    rows = _facts()["release"]
    known = [row for row in rows if Version.parse(row["since"]) <= wanted]
    return Release(version, known[-1] if known else rows[0])


def most_shared(target: Target) -> int:
    """Bytes of shared memory that a block can have there."""
    limits: Mapping[str, int] = _facts()["shared"]
    capability = target.capability
    if capability is None:
        return limits.get(target.arch, limits["gfx"])
    number = f"{capability.major}.{capability.minor}"
    return limits.get(number, max(limits.values()))


def devices() -> Mapping[str, int]:
    """NVIDIA's archs, `sm_86`, and the bytes of shared memory that a block can have there."""
    limits: Mapping[str, int] = _facts()["shared"]
    return {f"sm_{name.replace('.', '')}": most for name, most in limits.items() if "." in name}


def device_facts(target: Target, flavour: str) -> dict[str, Any]:
    """What holds for every device that a target's code is made for, as its worker is told.

    Args:
        target: whose devices.
        flavour: see `kbuild.languages.base.flavour`; which releases Torch may be built with.
    """
    if target.arch == CPU.arch:
        return {"backend": "cpu", "arch": "cpu", "torch": list(_torch_releases("cpu", flavour))}
    capability = target.capability
    if capability is None:
        digits = target.arch.removeprefix("gfx")
        arch, number = target.arch, [int(digits[:-2]), int(digits[-2], 16)]
        backend, warp = "hip", _WAVE if digits.startswith("9") else _WARP
    else:
        arch, number = f"{capability.major}.{capability.minor}", [*capability.base]
        backend, warp = "cuda", _WARP
    properties = {**_facts()["properties"].get(backend, {}), **_facts()["device"].get(arch, {})}
    return {
        "backend": backend,
        "arch": arch,
        "capability": number,
        "warp": warp,
        "shared": most_shared(target),
        "names": properties.pop("names", []),
        "properties": properties,
        "releases": list(_releases(backend, flavour)),
        "torch": list(_torch_releases(backend, flavour)),
    }


@cache
def _releases(backend: str, flavour: str) -> tuple[str, ...]:
    """The toolkits that Torch is built with, where code of that flavour runs."""
    found = (entry.backend_version for entry in _builds(backend, flavour))
    return tuple(dict.fromkeys(str(version) for version in found if version is not None))


@cache
def _torch_releases(backend: str, flavour: str) -> tuple[str, ...]:
    """Torch's releases that are built so."""
    return tuple(dict.fromkeys(f"{entry.torch}.0" for entry in _builds(backend, flavour)))


def _builds(backend: str, flavour: str) -> Iterator[Entry]:
    """Torch's builds with which code of a flavour runs."""
    wanted = "rocm" if backend == "hip" else backend
    for entry in entries():
        version = entry.backend_version
        fits = version is None or flavour in {"rocm", f"cuda{version.major}"}
        if entry.backend == wanted and fits:
            yield entry


@cache
def _facts() -> Mapping[str, Any]:
    import tomli

    facts: Mapping[str, Any] = tomli.loads(_FILE.read_text("utf-8"))
    return facts
