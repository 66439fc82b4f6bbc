"""Properties of GPUs by arch, such as shared memory and names; figures are in `devices.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.backends import rocm
from kbuild.ops.language import read_facts
from kbuild.ops.unit import CPU_TARGET, ImageTarget
from kbuild.project.matrix import MatrixEntry, matrix_entries

_FILE = Path(__file__).with_name("devices.toml")
_WARP = 32


def max_shared_memory(target: ImageTarget) -> int:
    """Maximum bytes of shared memory of a block on devices of the target."""
    limits: Mapping[str, int] = read_facts(_FILE)["shared"]
    capability = target.capability
    if capability is None:
        return limits.get(target.arch, limits["gfx"])
    number = f"{capability.major}.{capability.minor}"
    # Unknown archs get the largest limit, so that nothing is refused that may fit.
    return limits.get(number, max(limits.values()))


def cuda_devices() -> Mapping[str, int]:
    """NVIDIA's archs such as `sm_86` -> maximum bytes of shared memory of a block."""
    limits: Mapping[str, int] = read_facts(_FILE)["shared"]
    return {f"sm_{name.replace('.', '')}": most for name, most in limits.items() if "." in name}


def device_facts(target: ImageTarget, flavour: str) -> dict[str, Any]:
    """Return the device properties that hold for a whole target, as its worker needs them.

    The flavour decides which toolkit releases Torch may be built with.
    """
    if target.arch == CPU_TARGET.arch:
        return {"backend": "cpu", "arch": "cpu", "torch": list(_torch_releases("cpu", flavour))}
    capability = target.capability
    if capability is None:
        arch, number = target.arch, [*rocm.arch_version(target.arch)]
        backend, warp = "hip", rocm.wavefront(arch)
    else:
        arch, number = f"{capability.major}.{capability.minor}", [*capability.base]
        backend, warp = "cuda", _WARP
    properties = {
        **read_facts(_FILE)["properties"].get(backend, {}),
        **read_facts(_FILE)["device"].get(arch, {}),
    }
    return {
        "backend": backend,
        "arch": arch,
        "capability": number,
        "warp": warp,
        "shared": max_shared_memory(target),
        "names": properties.pop("names", []),
        "properties": properties,
        "releases": list(_releases(backend, flavour)),
        "torch": list(_torch_releases(backend, flavour)),
    }


def vendor_facts(backend: str) -> dict[str, Any]:
    """Return the toolkit releases of a vendor that Torch is built with, for any variant."""
    wanted = "rocm" if backend == "hip" else backend
    versions = (e.backend_version for e in matrix_entries() if e.backend == wanted)
    return {"releases": [*dict.fromkeys(str(version) for version in versions if version)]}


@cache
def _releases(backend: str, flavour: str) -> tuple[str, ...]:
    """The toolkit releases of Torch's builds with which code of that flavour runs."""
    versions = (entry.backend_version for entry in _builds(backend, flavour))
    return tuple(dict.fromkeys(str(version) for version in versions if version is not None))


@cache
def _torch_releases(backend: str, flavour: str) -> tuple[str, ...]:
    """The Torch releases that have a build with which code of that flavour runs."""
    return tuple(dict.fromkeys(f"{entry.torch}.0" for entry in _builds(backend, flavour)))


def _builds(backend: str, flavour: str) -> Iterator[MatrixEntry]:
    """Yield Torch's builds with which code of a flavour runs."""
    wanted = "rocm" if backend == "hip" else backend
    for entry in matrix_entries():
        version = entry.backend_version
        fits = version is None or flavour in {"rocm", f"cuda{version.major}"}
        if entry.backend == wanted and fits:
            yield entry
