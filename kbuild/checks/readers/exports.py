"""What Torch's libraries export, read off the dynamic symbol tables of its wheels.

`data/torch_exports.json` has them for several releases on one CPU; it is made by
`scripts/refresh_torch_exports.py`. Of each name it keeps 32 bits of a digest: a name that Torch
does not export is taken for one of its 75,000 in 1 of 57,000 cases. Names in `std` are not kept:
what Torch happens to export of libstdc++ is nobody's to take.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kbuild.checks.readers.policies import load, matches
from kbuild.variant import Variant
from kbuild.version import Version

DATA = "torch_exports"
_FULL, _STABLE = "torch", "torch-stable-abi"
_BYTES = 4
_MORE, _PAYLOAD, _STEP = 0x80, 0x7F, 7


def digest(name: str) -> int:
    """What is kept of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:_BYTES], "big")


def offered(name: str, variant: Variant) -> bool | None:
    """Whether the Torch that a variant loads under exports a symbol.

    Every release that it loads under has to. None: the data cannot tell, because it lacks the
    release, the system, or a library of the backend.
    """
    releases = _releases(variant)
    if not releases:
        return None
    masks = _masks().get(digest(name), 0)
    if all(masks & _bits(release, variant.backend) for release in releases):
        return True
    if variant.framework == _FULL and all(_is_complete(r, variant.backend) for r in releases):
        return False
    return None


def offered_elsewhere(name: str, variant: Variant) -> bool:
    """True for what builds of Torch for other CPUs export, as far as that is known."""
    data = load(DATA)
    system = variant.system
    is_other = system is None or system.cpu != data["cpu"] or system.os != "linux"
    return is_other and matches(name, tuple(data["other-cpus"]))


def torch_named(variant: Variant) -> str:
    """The releases that `offered` speaks of: `Torch 2.13.0`, `Torch 2.12.1 and later`."""
    releases = _releases(variant)
    first = load(DATA)["releases"][releases[0]]["version"]
    return f"Torch {first}{' and later' if len(releases) > 1 else ''}"


def openmp_versions(variant: Variant) -> tuple[str, ...] | None:
    """Versions of the `libgomp.so.1` that Torch brings; None when that is not known."""
    releases = _releases(variant)
    if not releases:
        return None
    data = load(DATA)["releases"]
    first, *others = (data[release]["openmp"] for release in releases)
    return tuple(version for version in first if all(version in other for other in others))


def _releases(variant: Variant) -> tuple[str, ...]:
    """The releases of the data that a variant loads under; none where the data says nothing."""
    data, system = load(DATA), variant.system
    if system is None or system.os != "linux" or system.cpu != data["cpu"]:
        return ()
    version = variant.framework_version
    if version is None or variant.framework not in (_FULL, _STABLE):
        return ()
    if variant.framework == _STABLE:
        return tuple(r for r in data["releases"] if Version.parse(r) >= version)
    return (str(version),) if str(version) in data["releases"] else ()


def _bits(release: str, backend: str) -> int:
    """The bits of one release: that of every build, and that of the builds for a backend."""
    data = load(DATA)
    place = [*data["releases"]].index(release) * len(data["groups"])
    groups = [at for at, group in enumerate(data["groups"]) if group in ("any", backend)]
    return sum(1 << (place + at) for at in groups)


def _is_complete(release: str, backend: str) -> bool:
    """True when every library of Torch that a variant may need was read."""
    known = load(DATA)["releases"][release]["libraries"]
    lists = load("libraries")
    wanted = [*lists["frameworks"][_FULL], *lists["framework-backends"][_FULL].get(backend, ())]
    return all(library in known for library in wanted)


@lru_cache(maxsize=1)
def _masks() -> Mapping[int, int]:
    """Digest -> a bit for each release and group that has the name."""
    return unpacked(load(DATA))


def unpacked(data: Mapping[str, Any]) -> dict[int, int]:
    """The names of a data file: differences of sorted digests, then which mask each has."""
    packed = zlib.decompress(base64.b85decode(data["names"]))
    digests = list(_sums(packed[: -data["count"]]))
    masks = data["masks"]
    return {name: masks[at] for name, at in zip(digests, packed[-data["count"] :], strict=True)}


def _sums(packed: bytes) -> Iterator[int]:
    """Differences, seven bits a byte, the lowest first."""
    total = value = shift = 0
    for byte in packed:
        value |= (byte & _PAYLOAD) << shift
        shift += _STEP
        if not byte & _MORE:
            total += value
            value = shift = 0
            yield total
