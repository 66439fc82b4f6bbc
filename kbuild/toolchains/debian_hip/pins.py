"""Which packages, by digest, and what becomes of their files; `data/` as values.

`scripts/refresh_debian_hip.py` writes `packages.json` and `symbols.txt`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from kbuild.installation import code_digest
from kbuild.store import Recipe
from kbuild.toolchains.debian.layout import Layout
from kbuild.toolchains.debian.packages import Package, Shelf

_DATA = resources.files("kbuild.toolchains.debian_hip") / "data"
_CODE = ("entry.py", "stub.py")
_FILES = (
    "packages.json", "symbols.txt", "layout.toml", "hip-config.cmake", "hip-lang-config.cmake",
)  # fmt: skip


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
    def shelf(self) -> Shelf:
        """What is fetched."""
        return Shelf(self.suite, self.packages, "install ROCm")

    @property
    def recipe(self) -> Recipe:
        """The store entry."""
        code = code_digest(*(Path(__file__).with_name(name) for name in _CODE))
        return Recipe("debian-hip", self.hip, {"data": self.digest, "kbuild": code})


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
def layout() -> Layout:
    """Where the packages' files go."""
    return Layout.parse(text("layout.toml"))
