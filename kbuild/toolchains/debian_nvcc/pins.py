"""Which package, by digest, and what becomes of its files; `data/` as values.

`scripts/refresh_debian_nvcc.py` writes `packages.json`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kbuild.toolchains.debian.layout import Layout
from kbuild.toolchains.debian.packages import Package, Shelf
from kbuild.version import Version

_DATA = resources.files("kbuild.toolchains.debian_nvcc") / "data"
_FILES = ("packages.json", "layout.toml", "nvcc.profile")


@dataclass(frozen=True)
class Pins:
    """Everything of Debian's that a store entry is made from."""

    suite: str
    nvcc: str
    """`12.4.131`."""
    packages: tuple[Package, ...]
    digest: str
    """SHA-256 over all data files: another digest, another store entry."""

    @property
    def release(self) -> Version:
        """`12.4`."""
        parts = self.nvcc.split(".")
        return Version((int(parts[0]), int(parts[1])))

    @property
    def shelf(self) -> Shelf:
        """What is fetched."""
        return Shelf(self.suite, self.packages, "install the CUDA toolkit and set CUDA_HOME")

    @property
    def title(self) -> str:
        """For the record."""
        return f"{self.nvcc} (Debian {self.suite})"


@cache
def pins() -> Pins:
    """The package that this kbuild was tried with."""
    data = json.loads(text("packages.json"))
    packages = tuple(Package(**package) for package in data.pop("packages"))
    whole = "\0".join(text(name) for name in _FILES)
    return Pins(**data, packages=packages, digest=hashlib.sha256(whole.encode()).hexdigest())


def text(name: str) -> str:
    """One data file."""
    return (_DATA / name).read_text("utf-8")


@cache
def layout() -> Layout:
    """Where the package's files go."""
    return Layout.parse(text("layout.toml"))
