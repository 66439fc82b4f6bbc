"""A package that another tool builds, and the bindings that take its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.plugins.migrate.licence import DeclaredLicence


@dataclass
class Bindings:
    """The rewritten sources, and what they register."""

    texts: dict[str, str] = field(default_factory=dict)
    """Path -> rewritten text."""
    ops: dict[str, list[str]] = field(default_factory=dict)
    """Path -> the ops that it defines."""
    registering: list[str] = field(default_factory=list)
    """Paths of the sources that register ops."""
    namespaces: set[str] = field(default_factory=set)
    """Names of `TORCH_LIBRARY` that gave way to the build's."""
    notes: list[str] = field(default_factory=list)
    is_opened: bool = False
    """A `TORCH_LIBRARY` has opened the namespace: further ones are fragments."""


@dataclass(frozen=True)
class ForeignExtension:
    """One extension module as setuptools builds it."""

    name: str
    """Dotted module name: `lltm_cuda`, `pkg._C`."""
    sources: tuple[str, ...]
    """POSIX paths relative to the package's root."""
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    """Compute capabilities that the build file sets besides flags: `8.0`, `9.0+PTX`."""
    is_for_cuda: bool = False
    """True for a `CUDAExtension`, whose sources may all be C++."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Argument -> where it is given, e.g. `setup.py:31`; the extension itself by an empty name."""

    @property
    def is_cuda(self) -> bool:
        """True when it is compiled for CUDA."""
        return self.is_for_cuda or any(path.endswith((".cu", ".cuh")) for path in self.sources)

    def place(self, argument: str = "") -> str:
        """The place of an argument."""
        return self.places.get(argument) or self.places.get("") or self.name


@dataclass(frozen=True)
class ForeignPackage:
    """A package that is taken over."""

    root: Path
    name: str
    declared_licences: tuple[DeclaredLicence, ...] = ()
    extensions: tuple[ForeignExtension, ...] = ()
    modules: Mapping[str, Path] = field(default_factory=dict)
    """Dotted name of each Python module -> its file; a package has `.__init__` at its end."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Dotted name of each Python package -> its folder."""
    dependencies: tuple[tuple[str, str], ...] = ()
    """Requirement and place of each."""
    notes: tuple[str, ...] = ()
    """Sentences about what could not be read, and what no kernel has."""
