"""A project: its folder, its `build.toml` with what backends add to it, and its `kbuild.toml`.

`kbuild.toml` has settings that only kbuild has, in the tables `build` and `allow`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.backends import BACKENDS
from kbuild.backends.base import other_backend_names
from kbuild.ops.rules import DslRules
from kbuild.project.config.display import display_path
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.issue import Issue, did_you_mean, toml_type
from kbuild.project.config.load import load, parse_build_file, read_build_file
from kbuild.project.config.model import ArchKey, BackendCatalog, BuildFile, KernelSection
from kbuild.project.config.section_readers import PluginReading
from kbuild.project.variant import System
from kbuild.system.errors import ConfigError, Problem
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


_TABLES = {"build": ("systems",), "allow": None}
"""The tables with their keys; checks know the keys of `allow`."""
_WRITE = 'write `systems = ["aarch64-linux"]`'


def read_kbuild_file(
    tree: SourceTree, more: Callable[[Mapping[str, Any]], Iterator[Issue]] = lambda _: iter(())
) -> Mapping[str, Any]:
    """The tables of a project's `kbuild.toml`; empty without one. `more` finds further issues.

    Raises:
        ConfigError: with everything that is wrong with the file.
    """
    if not tree.is_file(KBUILD_FILE) and tree.fault(KBUILD_FILE) is None:
        return {}
    if not tree.read_bytes(KBUILD_FILE).strip():
        return {}
    text = read_build_file(tree, KBUILD_FILE)
    document = parse_build_file(tree, KBUILD_FILE, text)
    issues = [*_issues(document), *more(document)]
    if issues:
        from kbuild.project.config.locate import LineIndex, problem_at

        lines, place = LineIndex(text), display_path(tree.root, KBUILD_FILE)
        raise ConfigError(sorted(problem_at(issue, lines, place) for issue in issues))
    return document


def systems_of_project(root: Path) -> frozenset[System]:
    """The systems of `build.systems`; errors of `read_kbuild_file`."""
    if not os.path.lexists(root / KBUILD_FILE):
        return frozenset()
    listed = read_kbuild_file(SourceTree(root)).get("build", {}).get("systems", ())
    return frozenset(map(System.parse, listed))


def _issues(document: Mapping[str, Any]) -> Iterator[Issue]:
    for key, table in document.items():
        if key not in _TABLES:
            guess = did_you_mean(key, _TABLES) or "allowed: `[allow]`, `[build]`"
            yield Issue((key,), "is not a table of this file", guess, is_about_key=True)
        elif not isinstance(table, dict):
            yield Issue((key,), f"is {toml_type(table)}, not a table", f"write `[{key}]`")
        elif known := _TABLES[key]:
            for name in table.keys() - {*known}:
                yield Issue((key, name), f"is not a key of `[{key}]`", _WRITE, is_about_key=True)
            yield from _system_issues(table.get("systems", []))


def _system_issues(listed: object) -> Iterator[Issue]:
    at = ("build", "systems")
    if not isinstance(listed, list):
        yield Issue(at, f"is {toml_type(listed)}, not a list of systems", _WRITE)
        return
    for number, text in enumerate(listed):
        try:
            System.parse(str(text))
        except ValueError:
            yield Issue((*at, number), f"`{text}` is not a system", _WRITE)
