"""What there is to take over of a package that another tool builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ForeignExtension:
    """One extension module as setuptools or CMake builds it."""

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

    @property
    def is_cuda(self) -> bool:
        """True when any source is CUDA."""
        return any(source.endswith((".cu", ".cuh")) for source in self.sources)


@dataclass(frozen=True)
class ForeignPackage:
    """What there is to take over."""

    root: Path
    name: str
    license: str = ""
    extensions: tuple[ForeignExtension, ...] = ()
    modules: Mapping[str, Path] = field(default_factory=dict)
    """Dotted name of each Python module -> its file; a package has `.__init__` at its end."""
    notes: tuple[str, ...] = ()
    """What could not be read."""
