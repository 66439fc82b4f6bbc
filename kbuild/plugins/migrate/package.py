"""A package that another tool builds, its licence, and the bindings that take its place.

A licence is taken over and never chosen: where a package names none, or two, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.project.licences import spdx_doubt

LICENCE_FILES = re.compile(r"(?:licen[cs]e|copying|unlicense)(?:[-._].*)?", re.IGNORECASE)
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
}
"""Classifiers of the package index that mean one licence; `BSD License` means several."""
_SPELLINGS = {
    "mit license": "MIT", "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0", "bsd 3-clause": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause", "bsd 2-clause": "BSD-2-Clause",
}  # fmt: skip


@dataclass(frozen=True)
class DeclaredLicence:
    """A licence as one place names it."""

    text: str
    """An SPDX expression, or a name in words."""
    place: str
    """`setup.py:12`, `pyproject.toml:4`."""

    @property
    def name(self) -> str:
        """The SPDX expression; empty when it is none that kbuild knows."""
        text = self.text.strip()
        if text.startswith("License ::"):
            return _CLASSIFIERS.get(text.rpartition(" :: ")[2], "")
        if text.lower() in _SPELLINGS:
            return _SPELLINGS[text.lower()]
        return text if text and not spdx_doubt(text) else ""


def read_licence(declared: Sequence[DeclaredLicence], files: Sequence[str]) -> tuple[str, str]:
    """The SPDX expression, and why there is none: one of both is empty."""
    names = {part.name for part in declared}
    if len(names) == 1 and "" not in names:
        return names.pop(), ""
    evidence = [
        f"{part.place} says `{part.text.strip().partition(chr(10))[0]}`" for part in declared
    ]
    evidence += [f"{name} has a text" for name in files]
    return "", "; ".join(evidence) or "the package names no licence, and has no LICENSE file"


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
