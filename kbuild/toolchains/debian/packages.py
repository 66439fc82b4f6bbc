"""Packages of one suite, pinned by digest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Package:
    """One binary package."""

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
class Shelf:
    """What is fetched together."""

    suite: str
    packages: tuple[Package, ...]
    instead: str
    """What a user may do who cannot have them, as an imperative: `install ROCm`."""

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(package.size for package in self.packages)
