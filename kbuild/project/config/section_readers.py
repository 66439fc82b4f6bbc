"""Keys of plug-ins in kernels that are written in a DSL, read as ordinary `op` tables.

A plug-in registers a function for its key in the entry point group `kbuild.sections`. What the
function returns stands in the file's place of the key: every later stage sees `op` tables alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kbuild.project.config.document import is_in_dsl
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.issue import Issue
from kbuild.system.plugins import plugin_points
from kbuild.system.sourcetree import SourceTree

SECTIONS = "kbuild.sections"


class SectionReader(Protocol):
    """Turns a plug-in's key into `op` tables."""

    def __call__(
        self, value: Any, section: Mapping[str, Any], tree: SourceTree
    ) -> Iterable[Mapping[str, Any]]:
        """The `op` tables that a value stands for.

        Args:
            value: what the file says of the key, as TOML gives it; its type is not checked.
            section: the whole `[kernel.<name>]` table.
            tree: the project's files.

        Raises:
            ValueError: the value is wrong; the text is shown at the key's line.
        """


def read_plugin_sections(
    data: Mapping[str, Any], tree: SourceTree
) -> tuple[Mapping[str, Any], tuple[Issue, ...]]:
    """A file's content with `op` tables in place of the keys of plug-ins, and what is wrong."""
    kernels = data.get("kernel")
    sections = kernels if isinstance(kernels, dict) else {}
    own = {field.alias or name for name, field in LanguageSection.model_fields.items()}
    changed: dict[str, Any] = {}
    issues: list[Issue] = []
    for name, section in sections.items():
        if not isinstance(section, dict) or not is_in_dsl(section) or section.keys() <= own:
            continue
        points = {point.name: point for point in plugin_points(SECTIONS)}
        keys = sorted(section.keys() & points.keys() - own)
        ops = [*section["op"]] if isinstance(section.get("op"), list) else []
        for key in keys:
            reader: SectionReader = points[key].load()
            try:
                ops += [dict(op) for op in reader(section[key], section, tree)]
            except ValueError as error:
                issues.append(Issue(("kernel", name, key), str(error)))
        if keys:
            kept = {key: value for key, value in section.items() if key not in keys}
            changed[name] = {**kept, "op": ops}
    return ({**data, "kernel": {**sections, **changed}} if changed else data), tuple(issues)
