"""Keys of plug-ins in kernels that are written in a DSL, read as ordinary sections.

A plug-in registers a reader for its key in the entry point group `kbuild.sections`. What it reads
are `[kernel.*]` tables like those that authors write: every later stage sees these alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbuild.project.config.document import is_in_dsl
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.issue import Issue
from kbuild.system.plugins import plugin_points
from kbuild.system.sourcetree import SourceTree

SECTIONS = "kbuild.sections"


@dataclass(frozen=True)
class PluginSection:
    """A section that a plug-in reads from its key of a kernel."""

    name: str
    """Name that differs from those of all other sections with ops."""
    origin: str
    """The part of the author's source that the ops follow, such as a function. `kbuild tune` knows
    the ops by it, and measures them only on calls that `tune` lists."""
    table: Mapping[str, Any]
    """The keys of `[kernel.<name>]` that are not the kernel's own: `src`, `op` and the like."""


@dataclass(frozen=True)
class PackageFiles:
    """Files that a plug-in adds to a Python package, by their path in it."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """Path in the package -> the content of a generated file."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Path in the package -> the project's file, which is packaged there unchanged."""
    op_modules: tuple[str, ...] = ()
    """Modules of the package that register ops: they are imported with the other ops."""


@dataclass(frozen=True)
class PluginReading:
    """The tables under a plug-in's key, in all kernels of a project."""

    sections: Mapping[str, tuple[PluginSection, ...]] = field(default_factory=dict)
    """Sections of each kernel."""
    issues: tuple[Issue, ...] = ()
    """Problems of the tables, which are problems of `build.toml`."""
    build_errors: Mapping[str, tuple[Issue, ...]] = field(default_factory=dict)
    """Kernel -> problems that only a build reports, such as a file that the plug-in's own command
    is still to write."""
    inputs: tuple[str, ...] = ()
    """The project's files that were read, beside the kernels' sources."""

    def package_files(
        self,
        kernels: Collection[str],  # noqa: ARG002
        framework: str,  # noqa: ARG002
        folder: str,  # noqa: ARG002
    ) -> PackageFiles:
        """The files of the package of a variant; none by default.

        Args:
            kernels: the kernels that the variant has.
            framework: the table of its framework: `torch` or `tvm-ffi`.
            folder: the package's folder in the project, such as `torch-ext/my_ops`.

        Raises:
            ConfigError: there can be no such package.
        """
        return PackageFiles()


class SectionReader(Protocol):
    """Reads a plug-in's key."""

    value_type: Any
    """The type of the key's value, as pydantic takes it: for the schema and the reference."""

    def read(self, tables: Mapping[str, Mapping[str, Any]], tree: SourceTree) -> PluginReading:
        """Read the key in all kernels that have it.

        Args:
            tables: kernel -> its `[kernel.<name>]` table, as TOML gives it; nothing is checked.
            tree: the project's files.
        """


@dataclass(frozen=True)
class PluginReadings:
    """The readings of all plug-ins."""

    by_key: Mapping[str, PluginReading] = field(default_factory=dict)
    kernels: frozenset[str] = frozenset()
    """Kernels that have a plug-in's key, and need no ops of their own."""

    def sections_of(self, kernel: str) -> tuple[PluginSection, ...]:
        """The sections that plug-ins read from a kernel."""
        readings = self.by_key.values()
        return tuple(
            section for reading in readings for section in reading.sections.get(kernel, ())
        )


def section_readers() -> dict[str, SectionReader]:
    """The readers of all plug-ins by key."""
    return {point.name: point.load() for point in plugin_points(SECTIONS)}


def read_plugin_sections(
    data: Mapping[str, Any], tree: SourceTree
) -> tuple[Mapping[str, Any], PluginReadings]:
    """A file's content without the keys of plug-ins, and what these read from them."""
    kernels = data.get("kernel")
    known_keys = {field.alias or name for name, field in LanguageSection.model_fields.items()}
    sections = {
        name: section
        for name, section in (kernels if isinstance(kernels, dict) else {}).items()
        if isinstance(section, dict) and is_in_dsl(section) and not section.keys() <= known_keys
    }
    if not sections:
        return data, PluginReadings()
    points = {
        point.name: point for point in plugin_points(SECTIONS) if point.name not in known_keys
    }
    readings: dict[str, PluginReading] = {}
    for key in sorted({key for section in sections.values() for key in section} & points.keys()):
        reader: SectionReader = points[key].load()
        tables = {name: section for name, section in sections.items() if key in section}
        readings[key] = reader.read(tables, tree)
    stripped = {
        name: {key: value for key, value in section.items() if key not in readings}
        for name, section in sections.items()
    }
    with_plugin_keys = frozenset(name for name in sections if stripped[name] != sections[name])
    stripped_data = {**data, "kernel": {**data["kernel"], **stripped}}
    return stripped_data, PluginReadings(readings, with_plugin_keys)
