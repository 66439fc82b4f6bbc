"""A project: its folder, its `build.toml`, and how the file was found.

Joins the configuration models with what the backends add to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kbuild.config.model import BuildFile, KernelSection
from kbuild.errors import Problem

BUILD_FILE = "build.toml"


@dataclass(frozen=True)
class Project:
    """A kernel's source tree with its validated `build.toml` (always in edition 5 terms)."""

    root: Path
    """Absolute folder of `build.toml`."""
    file: BuildFile
    edition: int
    """Edition that the file is written in: 3, 4 or 5."""
    warnings: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """`general.name`."""
        return self.file.general.name

    @property
    def python_name(self) -> str:
        """The Python package's name."""
        return self.file.general.python_name

    def kernels_for(self, backend: str) -> dict[str, KernelSection]:
        """The `[kernel.*]` sections of one backend, by name, in name order."""
        return {
            name: section
            for name, section in sorted(self.file.kernel.items())
            if section.backend == backend
        }

    def is_compiled(self, backend: str) -> bool:
        """True when the backend has at least one kernel section."""
        return bool(self.kernels_for(backend))
