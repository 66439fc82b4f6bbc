"""A project: its folder, and its `build.toml` with the tables and keys that backends add."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.backends import BACKENDS
from kbuild.backends.base import other_backend_names
from kbuild.ops.rules import DslRules
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.load import load
from kbuild.project.config.model import ArchKey, BackendCatalog, BuildFile, KernelSection
from kbuild.project.config.section_readers import PluginReading
from kbuild.system.errors import Problem
from kbuild.system.file_state import stat_state
from kbuild.system.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.ops.section import DslSection

BUILD_FILE = "build.toml"
KBUILD_FILE = "kbuild.toml"
"""Name of the file with kbuild's own settings: other tools that read `build.toml` refuse unknown
keys."""


@dataclass(frozen=True)
class Project:
    """A kernel's source tree with its validated `build.toml` (always in edition 5 terms)."""

    root: Path
    file: BuildFile
    edition: int
    """Edition that the file is written in: 3, 4 or 5."""
    warnings: tuple[Problem, ...] = ()
    dsl_sections: Mapping[str, tuple[DslSection, ...]] = field(default_factory=dict)
    """Kernel in a Python DSL -> its section, and those that plug-ins read from keys of it."""
    plugin_readings: Mapping[str, PluginReading] = field(default_factory=dict)
    """Key of a plug-in -> its reading of that key in all of these kernels."""

    @property
    def name(self) -> str:
        """`general.name`."""
        return self.file.general.name

    @property
    def python_name(self) -> str:
        """The Python package's name."""
        return self.file.general.python_name

    @property
    def cxx_kernels(self) -> dict[str, KernelSection]:
        """The `[kernel.*]` sections of C++, CUDA, HIP, SYCL and Metal, by name, in name order."""
        sections = sorted(self.file.kernel.items())
        return {name: section for name, section in sections if isinstance(section, KernelSection)}

    @property
    def dsl_kernels(self) -> dict[str, LanguageSection]:
        """The `[kernel.*]` sections in Python DSLs, by name, in name order."""
        sections = sorted(self.file.kernel.items())
        return {name: section for name, section in sections if isinstance(section, LanguageSection)}

    def cxx_kernels_for(self, backend: str) -> dict[str, KernelSection]:
        """The C++ kernels of one backend, by name, in name order."""
        return {
            name: section
            for name, section in self.cxx_kernels.items()
            if section.backend == backend
        }

    def dsl_kernels_for(self, backend: str) -> dict[str, LanguageSection]:
        """The kernels of one backend in Python DSLs, by name, in name order."""
        return {
            name: section
            for name, section in self.dsl_kernels.items()
            if backend in section.backends
        }

    def is_compiled(self, backend: str) -> bool:
        """True when the backend has at least one kernel section."""
        return bool(self.cxx_kernels_for(backend) or self.dsl_kernels_for(backend))


def backend_catalog(*, plugins: bool = False) -> BackendCatalog:
    """Keys and names that backends add to the models; with `plugins`, also those of plug-ins."""
    backends = list(BACKENDS.load(plugins=plugins))
    return BackendCatalog(
        kernel_sections={b.name: b.section for b in backends if b.section is not None},
        general_sections={b.name: b.general for b in backends if b.general is not None},
        backends=tuple(b.name for b in backends),
        other_names=other_backend_names(backends),
        hosts=tuple(b.name for b in backends if b.runs_on_cpu),
        arch_keys={
            b.name: ArchKey(b.arch_key, b.check_gpu_arch)
            for b in backends
            if b.arch_key is not None
        },
    )


def open_project(root: Path, tree: SourceTree | None = None) -> Project:
    """Read and validate the project in `root`.

    Raises:
        ConfigError: with every error and warning about the project's files.
    """
    root = root.absolute()
    tree = tree or SourceTree(root)
    dsl_rules = DslRules()
    loaded = load(tree, lambda named: _catalog_for(named, tree), BUILD_FILE, (dsl_rules,))
    return Project(
        root,
        loaded.file,
        loaded.edition,
        loaded.warnings,
        # `load` has applied the rules, which read the sections.
        dsl_sections=dsl_rules.sections,
        plugin_readings=loaded.plugins.by_key,
    )


def _catalog_for(named: frozenset[str], tree: SourceTree) -> BackendCatalog:
    """The backends of kbuild itself; with plug-ins when the file names something else."""
    own = backend_catalog()
    if named <= {*own.backends}:
        return own
    # A recorded answer about the project must not outlive a change of the installed plug-ins.
    tree.observed.update(
        {folder: stat_state(folder) for folder in sys.path if Path(folder).is_absolute()}
    )
    return backend_catalog(plugins=True)
