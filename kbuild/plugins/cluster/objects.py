"""The objects of a configured tree as units, on the machine that builds and on workers alike."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from kbuild.build.compile import CompileTree
from kbuild.build.unit.cache import (
    DEFAULT_MEMORY,
    PRECOMPILED_SHARE,
    PeakHistory,
    UnitCache,
    memory_estimate,
)
from kbuild.build.unit.command import CompileCommand, source_key, unit_key
from kbuild.build.unit.inputs import FileHashes, UnitInputs
from kbuild.plugins.cluster.assignments import UnitResources
from kbuild.system.unit_settings import LauncherSettings, read_launcher_settings

_LAUNCHER_WORDS = 4
"""Words of a command before the language: `python -I -S launcher.py`."""
_MEMORY_STEP = 256
"""MiB: units that take about the same wait in one queue."""


@dataclass(frozen=True)
class ObjectUnit:
    """One object of a tree; `cache` sees its inputs as they were at one moment."""

    tree: CompileTree
    argv: list[str]
    """The launcher's command."""
    command: CompileCommand
    settings: LauncherSettings
    cache: UnitCache

    @property
    def key(self) -> str:
        """The key of the object, its headers aside."""
        return self.cache.key

    @property
    def label(self) -> str:
        """The source, relative to the project."""
        source = self.command.absolute(self.command.source)
        return source.removeprefix(f"{self.tree.project}/")

    @property
    def object(self) -> str:
        """Absolute path of the object."""
        return self.command.absolute(self.command.object)

    @property
    def tree_of_one(self) -> CompileTree:
        """The tree with this command alone."""
        return replace(self.tree, commands=[self.argv])

    @property
    def is_made(self) -> bool:
        """True when the object is in the tree or in the cache."""
        return os.path.exists(self.object) or self.cache.has_entry()  # noqa: PTH110 - one of thousands

    @property
    def expected_seconds(self) -> float:
        """The time of the last compilation; else a guess by the size of its source.

        Workers compile without precompiled headers.
        """
        if self._last is not None:
            return self._last[1]
        try:
            size = os.stat(self.command.absolute(self.command.source)).st_size  # noqa: PTH116
        except OSError:
            return 0.0
        return self.command.archs * (1.0 + size / 1e6)

    @property
    def expected_resources(self) -> UnitResources:
        """The resources of the last compilation, as this machine would reserve them."""
        if self._last is None:
            return UnitResources()
        memory = memory_estimate(self.command.language, self._last)
        return UnitResources(memory=-(-memory // _MEMORY_STEP) * _MEMORY_STEP)

    @property
    def cost(self) -> bytes:
        """MiB and seconds of the last compilation, to travel; empty when nothing is known."""
        return b"%d %.2f" % self._last if self._last is not None else b""

    def remember_cost(self, cost: bytes) -> None:
        """Keep what compiling took elsewhere; what cannot be read is left out."""
        match = re.fullmatch(rb"(\d{1,8}) (\d{1,8}(?:\.\d+)?)", cost)
        if match is not None:
            with suppress(OSError):
                self._history.record(self._history_keys, int(match[1]), float(match[2]))

    @cached_property
    def _last(self) -> tuple[int, float] | None:
        last = self._history.recall(*self._history_keys)
        fast = None if last else self._history.recall(*self._history_keys, precompiled=True)
        return (max(fast[0], DEFAULT_MEMORY["CXX"]), fast[1] / PRECOMPILED_SHARE) if fast else last

    @property
    def _history(self) -> PeakHistory:
        return PeakHistory(self.settings.cache or self.settings.run)

    @property
    def _history_keys(self) -> tuple[str, str]:
        return unit_key(self.command), source_key(self.command)


def object_units(tree: CompileTree) -> Iterator[ObjectUnit]:
    """The objects of a tree that a cache can hold, looked up at one moment."""
    settings = read_launcher_settings(tree.environ)
    if settings is None or not settings.cache or settings.tool:
        return
    files = FileHashes(settings.cache)
    for argv in tree.commands:
        language, *compiler = argv[_LAUNCHER_WORDS:]
        command = CompileCommand(compiler, language, str(tree.tree))
        if command.refusal:
            continue
        try:
            inputs = UnitInputs(settings, command, tree.environ, files)
            cache = UnitCache(settings, command, tree.environ, inputs)
        except OSError:  # the compiler will say so
            continue
        if not cache.refusal:
            yield ObjectUnit(tree, argv, command, settings, cache)
    files.save()
