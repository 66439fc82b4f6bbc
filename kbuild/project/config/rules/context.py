"""The values beside the document that rules read."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.project.config.model import BackendCatalog
from kbuild.project.config.section_readers import PluginReadings
from kbuild.system.sourcetree import SourceTree


@dataclass(frozen=True)
class RuleContext:
    """Facts beside the document that the rules need."""

    catalog: BackendCatalog
    tree: SourceTree
    edition: int
    """Edition that the file is written in."""
    plugins: PluginReadings
    """Readings of the plug-ins' keys."""
