"""Policies as data: which libraries and which symbol versions a variant may ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Any

from kbuild.config.suggest import one_of
from kbuild.variant import Variant


@lru_cache(maxsize=8)
def load(name: str) -> Mapping[str, Any]:
    """The JSON file of that name under `kbuild/checks/data`."""
    text = (files("kbuild.checks") / "data" / f"{name}.json").read_text("utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def allowed_libraries(variant: Variant | None) -> tuple[str, ...]:
    """Patterns of library names that an extension may need; of any variant when it is unknown."""
    data = load("libraries")
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
    data = load("libraries")
    tables = (data["backends"], *data["framework-backends"].values())
    return tuple(
        sorted(
            {
                backend
                for table in tables
                for backend, patterns in table.items()
                if matches(name, tuple(p.replace("{major}", "*") for p in patterns))
            }
        )
    )


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """True when one of the patterns fits the library's name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Policy:
    """What a family of Linux systems brings: `manylinux_2_28` of PEP 600, `musllinux_1_2`."""

    name: str
    aliases: tuple[str, ...]
    """Older names of the same policy: `manylinux2014`."""
    libraries: tuple[str, ...]
    """System libraries that a file may need."""
    withheld: Mapping[str, tuple[str, ...]]
    """Library -> symbols that some of these systems lack although the library is there."""
    versions: Mapping[str, Mapping[str, list[str]]]
    """CPU -> version family (`GLIBC`) -> allowed versions, oldest first."""


@lru_cache(maxsize=1)
def policies() -> tuple[Policy, ...]:
    """Every policy of the data, oldest first, manylinux before musllinux."""
    return tuple(
        Policy(
            name=entry["name"],
            aliases=tuple(entry["aliases"]),
            libraries=tuple(entry["libraries"]),
            withheld={key: tuple(names) for key, names in entry["withheld"].items()},
            versions=entry["versions"],
        )
        for entry in load("manylinux")["policies"]
    )


def policy_of(name: str) -> Policy:
    """The policy of that name or alias.

    Raises:
        ValueError: there is none.
    """
    by_name = {known: policy for policy in policies() for known in (policy.name, *policy.aliases)}
    if name not in by_name:
        raise ValueError(f"no policy `{name}`: {one_of(name, by_name)}")
    return by_name[name]


def symbol_versions(cpu: str, policy: str = "manylinux_2_28") -> Mapping[str, list[str]]:
    """Version family (`GLIBC`) -> the versions that a policy allows on this CPU; empty for none."""
    return policy_of(policy).versions.get(cpu, {})
