"""Policies as data: which libraries and which symbol versions a variant may ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Any

from kbuild.variant import Variant


@lru_cache(maxsize=8)
def load(name: str) -> Mapping[str, Any]:
    """The JSON file of that name under `kbuild/checks/data`."""
    text = (files("kbuild.checks") / "data" / f"{name}.json").read_text("utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def allowed_libraries(variant: Variant) -> tuple[str, ...]:
    """Patterns of library names that an extension of this variant may need."""
    data = load("libraries")
    by_backend = data["framework-backends"].get(variant.framework, {})
    patterns = [
        *data["system"],
        *data["any-backend"],
        *data["frameworks"].get(variant.framework, ()),
        *by_backend.get(variant.backend, ()),
        *data["backends"].get(variant.backend, ()),
    ]
    major = str(variant.backend_version.major) if variant.backend_version else "*"
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


def symbol_versions(cpu: str) -> Mapping[str, list[str]]:
    """Version family (`GLIBC`) -> the versions that the manylinux policy allows on this CPU."""
    versions: Mapping[str, list[str]] = load("manylinux")["versions"].get(cpu, {})
    return versions
