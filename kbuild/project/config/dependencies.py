"""The libraries and Python packages that a `build.toml` may depend on, read from data files.

`dependencies.toml` and `python_dependencies.toml` say what each key means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from kbuild.system.version import Version

EVERY_BACKEND = "general"
"""The scope of Python packages that are needed whatever the backend is."""


@dataclass(frozen=True)
class Library:
    """Headers that a kernel's `depends` asks for."""

    name: str
    title: str
    version: str | None = None
    """Release; None when nothing is fetched, or when it depends on the compiler (`versions`)."""
    package: str | None = None
    """CMake package that is looked for first."""
    source_dir: str | None = None
    """Variable that points at an unpacked source tree."""
    repository: str | None = None
    tag: str | None = None
    include: tuple[str, ...] = ()
    """Include folders of the source tree."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Compiler release -> library release, where it matters."""

    def version_for(self, compiler: Version | None) -> str | None:
        """The release for a compiler: the entry of the newest listed release that is not newer."""
        if self.version or compiler is None:
            return self.version
        fitting = [text for text in self.versions if Version.parse(text) <= compiler]
        return self.versions[max(fitting, key=Version.parse)] if fitting else None


@dataclass(frozen=True)
class PythonPackage:
    """A Python package that a kernel needs at run time."""

    name: str
    """Name in `python-depends` and `metadata.json`."""
    package: str
    """Distribution on PyPI."""
    module: str | None
    """The module that the loader tries to import; None when it tries none."""
    brings: tuple[str, ...] = ()
    """Modules of what the distribution requires."""


def _read(name: str) -> dict[str, Any]:
    return tomli.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def libraries() -> Mapping[str, Library]:
    """Every name that `depends` may hold."""
    return {
        name: Library(
            name,
            include=tuple(facts.pop("include", ())),
            **{key.replace("-", "_"): fact for key, fact in facts.items()},
        )
        for name, facts in _read("dependencies.toml").items()
    }


@lru_cache(maxsize=1)
def python_packages() -> Mapping[str, Mapping[str, PythonPackage]]:
    """Scope (`general` or a backend) -> name -> package."""
    return {
        scope: {
            name: PythonPackage(
                name, facts["package"], facts.get("import"), tuple(facts.get("brings", ()))
            )
            for name, facts in packages.items()
        }
        for scope, packages in _read("python_dependencies.toml").items()
    }


def distribution_of(name: str) -> str:
    """The distribution on the package index that a name in `python-depends` stands for."""
    scopes = python_packages().values()
    return next((scope[name].package for scope in scopes if name in scope), name)
