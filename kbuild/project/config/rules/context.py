"""The values beside the document that rules read."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.project.config.model import BackendCatalog
from kbuild.project.config.section_readers import PluginReadings
from kbuild.system.sourcetree import SourceTree


@dataclass(frozen=True)
class RuleContext:
    """What the rules may ask beside the document."""

    catalog: BackendCatalog
    tree: SourceTree
    edition: int
    """Edition that the file is written in."""
    plugins: PluginReadings
    """What plug-ins read from their keys."""
