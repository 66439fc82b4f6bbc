"""Which packages, by digest, and what becomes of their files; `data/` as values.

`scripts/refresh_debian_hip.py` writes `packages.json` and `symbols.txt`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePosixPath

from kbuild.store import Recipe

_DATA = resources.files("kbuild.toolchains.debian_hip") / "data"
_FILES = (
    "packages.json", "symbols.txt", "layout.toml", "hip-config.cmake", "hip-lang-config.cmake",
)  # fmt: skip


@dataclass(frozen=True)
class Package:
    """One binary package of the suite."""

    name: str
    version: str
    path: str
    """Where mirrors have it, relative to their root."""
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The file's name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Pins:
    """Everything that a store entry is made from."""

    suite: str
    rocm: int
    """Major release of the ROCm that the result is for: the runtime's soname."""
    clang: str
    hip: str
    packages: tuple[Package, ...]
    digest: str
    """SHA-256 over all data files: another digest, another store entry."""

    @property
    def soname(self) -> str:
        """Of the HIP runtime."""
        return f"libamdhip64.so.{self.rocm}"

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(package.size for package in self.packages)

    @property
    def recipe(self) -> Recipe:
        """The store entry."""
        return Recipe("debian-hip", self.hip, {"data": self.digest})


@cache
def pins() -> Pins:
    """The packages that this kbuild was tried with."""
    data = json.loads(text("packages.json"))
    packages = tuple(Package(**package) for package in data.pop("packages"))
    whole = "\0".join(text(name) for name in _FILES)
    return Pins(**data, packages=packages, digest=hashlib.sha256(whole.encode()).hexdigest())


def text(name: str) -> str:
    """One data file."""
    return (_DATA / name).read_text("utf-8")


@cache
def _layout() -> tuple[tuple[re.Pattern[str], str], ...]:
    import tomli

    rules = tomli.loads(text("layout.toml"))["take"]
    return tuple((re.compile(rule["from"]), rule["to"]) for rule in rules)


def destination(path: str) -> str | None:
    """Where a package's file goes in the store entry; None when it is not needed."""
    for pattern, target in _layout():
        match = pattern.fullmatch(path)
        if match is not None:
            return match.expand(target)
    return None
