"""Entry points of installed distributions, by which plug-ins register.

`importlib.metadata` knows the same, but importing it takes longer than all of `kbuild --help`: this
module imports next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class PluginPoint:
    """An entry point: a name, and `module:attribute` or a module alone."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value

    def load(self) -> Any:
        """Import what it names; raises `ImportError` or `AttributeError`."""
        from importlib import import_module

        module, _, attribute = self.value.partition(":")
        loaded = import_module(module)
        return getattr(loaded, attribute) if attribute else loaded


def plugin_points(group: str) -> tuple[PluginPoint, ...]:
    """The entry points of a group; the first of a name on Python's search path counts."""
    points: dict[str, PluginPoint] = {}
    for text in _declarations():
        if f"[{group}]" not in text:  # most of them
            continue
        section = ""
        for line in text.splitlines():
            name, is_entry, value = (part.strip() for part in line.partition("="))
            if line.startswith("["):
                section = line.strip("[] ")
            elif section == group and is_entry:
                points.setdefault(name, PluginPoint(name, value.partition("[")[0].strip()))
    return tuple(points.values())


def _declarations() -> Iterator[str]:
    """The files that declare entry points, in the order of Python's search path."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:  # an archive, or nothing
            continue
        for name in sorted(names):
            if name.endswith("-info"):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                        yield file.read().decode("utf-8", "replace")
                except OSError:  # the distribution has none
                    continue
