"""Requirements of a library on the system and on Torch: policies, limits and Torch's exports.

The data is in `kbuild/checks/data`; `scripts/refresh_torch_exports.py` and
`scripts/manylinux_symbols.py` refresh it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

from kbuild.plan.command_options import option
from kbuild.project.config.issue import one_of
from kbuild.project.matrix import deployment_target
from kbuild.project.variant import Variant
from kbuild.system.errors import UsageError
from kbuild.system.quantities import parse_size
from kbuild.system.version import Version


@lru_cache(maxsize=8)
def load_data(name: str) -> Mapping[str, Any]:
    """The JSON file of that name under `kbuild/checks/data`."""
    text = (files("kbuild.checks") / "data" / f"{name}.json").read_text("utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def allowed_libraries(variant: Variant | None) -> tuple[str, ...]:
    """Patterns of library names that an extension may need; of any variant when it is unknown."""
    data = load_data("libraries")
    patterns = [*data["system"], *data["any-backend"]]
    if variant is None:
        tables = (data["frameworks"], data["backends"], *data["framework-backends"].values())
        patterns += [pattern for table in tables for names in table.values() for pattern in names]
    else:
        by_backend = data["framework-backends"].get(variant.framework, {})
        patterns += data["frameworks"].get(variant.framework, ())
        patterns += by_backend.get(variant.backend, ())
        patterns += data["backends"].get(variant.backend, ())
    release = variant.backend_version if variant else None
    major = str(release.major) if release else "*"
    return tuple(pattern.replace("{major}", major) for pattern in patterns)


def backends_of_library(name: str) -> tuple[str, ...]:
    """Backends whose variants may need the library, whatever their version."""
    data = load_data("libraries")
    tables = (data["backends"], *data["framework-backends"].values())
    return tuple(
        sorted(
            {
                backend
                for table in tables
                for backend, patterns in table.items()
                if matches_any(name, tuple(p.replace("{major}", "*") for p in patterns))
            }
        )
    )


def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    """True when one of the patterns fits the library's name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Policy:
    """A family of Linux systems: `manylinux_2_28` of PEP 600."""

    name: str
    aliases: tuple[str, ...]
    """Older names of the same policy: `manylinux2014`."""
    libraries: tuple[str, ...]
    withheld: Mapping[str, tuple[str, ...]]
    """Library -> symbols that some of these systems lack although the library is there."""
    versions: Mapping[str, Mapping[str, list[str]]]
    """CPU -> version family (`GLIBC`) -> allowed versions, oldest first."""


@lru_cache(maxsize=1)
def policies() -> tuple[Policy, ...]:
    """Every policy of the data, oldest first."""
    return tuple(
        Policy(
            name=entry["name"],
            aliases=tuple(entry["aliases"]),
            libraries=tuple(entry["libraries"]),
            withheld={key: tuple(names) for key, names in entry["withheld"].items()},
            versions=entry["versions"],
        )
        for entry in load_data("manylinux")["policies"]
    )


def find_policy(name: str) -> Policy:
    """The policy of that name or alias.

    Raises:
        ValueError: there is none.
    """
    by_name = {known: policy for policy in policies() for known in (policy.name, *policy.aliases)}
    if name not in by_name:
        raise ValueError(f"no policy `{name}`: {one_of(name, by_name)}")
    return by_name[name]


DEFAULT_POLICY = "manylinux_2_28"
DEFAULT_PYTHON_ABI = Version((3, 9))


_LIMITS = "how much is allowed"


def _parse_version(flag: str, text: str) -> Version | None:
    try:
        return Version.parse(text) if text else None
    except ValueError as error:
        raise UsageError(f"{flag}: {error}", hint="write it like 3.9") from None


def _parse_policy(name: str) -> str:
    try:
        return find_policy(name).name
    except ValueError as error:
        raise UsageError(f"--manylinux: {error}") from None


@dataclass(frozen=True)
class CheckLimits:
    """The ceilings that checks hold libraries against; None is "as the variant promises".

    Raises:
        ValueError: no such policy; says which one may be meant.
    """

    manylinux: str | None = option(
        "-m",
        "--manylinux",
        group=_LIMITS,
        metavar="POLICY",
        help="newest manylinux policy that libraries may need, e.g. manylinux_2_34 "
        "(default: manylinux_2_28)",
        parse=_parse_policy,
    )
    """A policy of auditwheel by name or alias: `manylinux_2_28`, `manylinux2014`."""
    macos: Version | None = option(
        "--macos",
        group=_LIMITS,
        metavar="VERSION",
        help="oldest macOS that must load the libraries, e.g. 15.0",
        parse=partial(_parse_version, "--macos"),
    )
    python_abi: Version | None = option(
        "-p",
        "--python-abi",
        group=_LIMITS,
        metavar="VERSION",
        help="oldest CPython that must load the extension (default: 3.9)",
        parse=partial(_parse_version, "--python-abi"),
    )
    torch_stable_abi: Version | None = option(
        "--torch-stable-abi",
        group=_LIMITS,
        metavar="VERSION",
        help="oldest Torch that must load the library, e.g. 2.11",
        parse=partial(_parse_version, "--torch-stable-abi"),
    )
    """Still None after `filled` when only one Torch must load it."""
    max_size: int | None = option(
        "--max-size",
        group=_LIMITS,
        metavar="SIZE",
        help="size limit for the files of a variant, e.g. 200M",
        parse=lambda text: parse_size(text, "--max-size") if text else None,
    )
    """Bytes of all files of a variant together; still None after `filled` for no limit."""

    def __post_init__(self) -> None:
        if self.manylinux is not None:
            object.__setattr__(self, "manylinux", find_policy(self.manylinux).name)

    def filled(self, variant: Variant | None) -> CheckLimits:
        """The limits, with those that nobody chose as the variant's name promises them."""
        stable = variant is not None and variant.framework == "torch-stable-abi"
        promised = variant.framework_version if variant and stable else None
        backend = variant.backend if variant else ""
        return replace(
            self,
            manylinux=self.manylinux or DEFAULT_POLICY,
            macos=self.macos or Version.parse(deployment_target(backend)),
            python_abi=self.python_abi or DEFAULT_PYTHON_ABI,
            torch_stable_abi=self.torch_stable_abi or promised,
        )


EXPORTS_BY_CPU = {"x86_64": "torch_exports", "aarch64": "torch_exports_aarch64"}
"""Processor -> the data file with what Torch's libraries export on Linux there."""
_FULL, _STABLE = "torch", "torch-stable-abi"
_BYTES = 4
_MORE, _PAYLOAD, _STEP = 0x80, 0x7F, 7


def symbol_digest(name: str) -> int:
    """The part of a name's digest that is stored."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:_BYTES], "big")


def is_exported_by_torch(name: str, variant: Variant) -> bool | None:
    """True when the Torch that a variant loads under exports a symbol.

    Every release that it loads under has to. None: the data cannot tell, because it lacks the
    release, the system, or a library of the backend.
    """
    releases = _releases(variant)
    if not releases:
        return None
    data = _exports_of(variant)
    masks = _export_masks(str(data["cpu"])).get(symbol_digest(name), 0)
    if all(masks & _release_bits(data, release, variant.backend) for release in releases):
        return True
    if variant.framework == _FULL and all(
        _has_all_libraries(data["releases"][release], variant.backend) for release in releases
    ):
        return False
    return None


def torch_releases_text(variant: Variant) -> str:
    """Releases that `is_exported_by_torch` looks at: `Torch 2.13.0`, `Torch 2.12.1 and later`."""
    releases = _releases(variant)
    first = _exports_of(variant)["releases"][releases[0]]["version"]
    return f"Torch {first}{' and later' if len(releases) > 1 else ''}"


def openmp_versions(variant: Variant) -> tuple[str, ...] | None:
    """Versions of the `libgomp.so.1` that Torch ships; None when that is not known."""
    releases = _releases(variant)
    if not releases:
        return None
    data = _exports_of(variant)["releases"]
    first, *others = (data[release]["openmp"] for release in releases)
    return tuple(version for version in first if all(version in other for other in others))


def _releases(variant: Variant) -> tuple[str, ...]:
    """The releases of the data that a variant loads under; none where the data says nothing."""
    known = _exports_of(variant).get("releases", {})
    version = variant.framework_version
    if version is None or variant.framework not in (_FULL, _STABLE):
        return ()
    if variant.framework == _STABLE:
        return tuple(r for r in known if Version.parse(r) >= version)
    return (str(version),) if str(version) in known else ()


def _exports_of(variant: Variant) -> Mapping[str, Any]:
    """The data for a variant's processor; empty where there is none."""
    system = variant.system
    if system is None or system.os != "linux" or system.cpu not in EXPORTS_BY_CPU:
        return {}
    return load_data(EXPORTS_BY_CPU[system.cpu])


def _release_bits(data: Mapping[str, Any], release: str, backend: str) -> int:
    """The bits of one release: that of every build, and that of the builds for a backend."""
    place = [*data["releases"]].index(release) * len(data["groups"])
    groups = [at for at, group in enumerate(data["groups"]) if group in ("any", backend)]
    return sum(1 << (place + at) for at in groups)


def _has_all_libraries(release: Mapping[str, Any], backend: str) -> bool:
    """True when every library of Torch that a variant may need was read."""
    known = release["libraries"]
    lists = load_data("libraries")
    wanted = [*lists["frameworks"][_FULL], *lists["framework-backends"][_FULL].get(backend, ())]
    return all(library in known for library in wanted)


@lru_cache(maxsize=len(EXPORTS_BY_CPU))
def _export_masks(cpu: str) -> Mapping[int, int]:
    """Digest -> a bit for each release and group that has the name."""
    return unpack_exports(load_data(EXPORTS_BY_CPU[cpu]))


def unpack_exports(data: Mapping[str, Any]) -> dict[int, int]:
    """The names of a data file: differences of sorted digests, then which mask each has."""
    packed = zlib.decompress(base64.b85decode(data["names"]))
    digests = list(_running_sums(packed[: -data["count"]]))
    masks = data["masks"]
    return {name: masks[at] for name, at in zip(digests, packed[-data["count"] :], strict=True)}


def _running_sums(packed: bytes) -> Iterator[int]:
    """Differences, seven bits a byte, the lowest first."""
    total = value = shift = 0
    for byte in packed:
        value |= (byte & _PAYLOAD) << shift
        shift += _STEP
        if not byte & _MORE:
            total += value
            value = shift = 0
            yield total
