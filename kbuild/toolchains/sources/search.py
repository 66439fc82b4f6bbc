"""Which headers a build uses.

In this order: a folder named on the command line, one named in the environment, kbuild's store, a
wheel that holds exactly the release, a clone of the release's tag.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.store import Store, store_of
from kbuild.toolchains.sources.clone import from_git
from kbuild.toolchains.sources.commits import Commits
from kbuild.toolchains.sources.download import Download
from kbuild.toolchains.sources.folder import OPTION, folder_of_environment, given_folder
from kbuild.toolchains.sources.pins import Pin, pin_of
from kbuild.toolchains.sources.tree import HeaderSource
from kbuild.toolchains.sources.unavailable import in_short, unavailable
from kbuild.toolchains.sources.wheel import WAY, from_wheel
from kbuild.version import Version

PinOf = Callable[[str, "Version | None"], Pin]


@dataclass(frozen=True)
class HeaderSources:
    """Answers for one command; what was found, or failed, is not tried again. Thread-safe."""

    given: Mapping[str, Path]
    """Folders of the command line by dependency."""
    cache: Path
    """kbuild's cache folder."""
    runner: Runner
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    pin_of: PinOf = pin_of
    """What is known of a dependency."""
    _here: dict[str, HeaderSource | dict[str, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _fetched: dict[str, HeaderSource | ToolchainError] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Where fetched headers are kept."""
        return store_of(self.cache)

    @property
    def commits(self) -> Commits:
        """What the tags of git repositories were."""
        return Commits(self.cache / "commits", self.store)

    def refuses(self, names: Iterable[str], compiler: Version | None = None) -> str | None:
        """Why the headers cannot be had, in one sentence; None when they are here or can be tried.

        Asks no network.

        Raises:
            ToolchainError: a folder of the command line is wrong.
        """
        for name in names:
            try:
                pin = self.pin_of(name, compiler)
            except ToolchainError as error:
                return error.message
            if not isinstance(self._at_hand(pin), HeaderSource) and not self._downloads(pin):
                return in_short(pin)
        return None

    def expected(
        self, names: Iterable[str], compiler: Version | None = None
    ) -> tuple[HeaderSource, ...]:
        """What a build would use, as far as it is known without fetching anything.

        Raises:
            ToolchainError: there is no way to any of the headers.
        """
        return tuple(self._expected(self.pin_of(name, compiler)) for name in names)

    def resolve(
        self, names: Iterable[str], compiler: Version | None = None
    ) -> tuple[HeaderSource, ...]:
        """The headers; what is not here is fetched.

        Raises:
            ToolchainError: with everything that was tried, and how to supply them.
        """
        return tuple(self._resolved(self.pin_of(name, compiler)) for name in names)

    def _expected(self, pin: Pin) -> HeaderSource:
        found = self._at_hand(pin)
        if isinstance(found, HeaderSource):
            return found
        for download in self._downloads(pin):
            return download.expected(self.store)
        raise unavailable(pin, found | self._no_way(pin))

    def _resolved(self, pin: Pin) -> HeaderSource:
        found = self._at_hand(pin)
        if isinstance(found, HeaderSource):
            return found
        with self._lock:
            if pin.title not in self._fetched:
                self._fetched[pin.title] = self._fetch(pin, found)
        answer = self._fetched[pin.title]
        if isinstance(answer, ToolchainError):
            raise answer
        return answer

    def _fetch(self, pin: Pin, tried: dict[str, str]) -> HeaderSource | ToolchainError:
        failures = {}
        for download in self._downloads(pin):
            try:
                return download.install(self.store)
            except ToolchainError as error:
                failures[download.way] = error.message
        return unavailable(pin, tried | self._no_way(pin) | failures)

    def _at_hand(self, pin: Pin) -> HeaderSource | dict[str, str]:
        """The headers, when they are on this machine; otherwise where they are not."""
        if pin.title not in self._here:
            self._here[pin.title] = self._look(pin)
        return self._here[pin.title]

    def _look(self, pin: Pin) -> HeaderSource | dict[str, str]:
        if pin.name in self.given:
            return given_folder(pin, self.given[pin.name])
        named = folder_of_environment(pin, self.environ)
        if isinstance(named, HeaderSource):
            return named
        for download in self._downloads(pin):
            installed = download.installed(self.store)
            if installed is not None:
                return installed
        return {OPTION: "not given", "environment": named, "kbuild's store": "does not have them"}

    def _ways(self, pin: Pin) -> dict[str, Download | str]:
        return {
            WAY: from_wheel(pin, self.runner, self.environ),
            "git": from_git(pin, self.runner, self.environ, self.commits),
        }

    def _downloads(self, pin: Pin) -> list[Download]:
        return [way for way in self._ways(pin).values() if isinstance(way, Download)]

    def _no_way(self, pin: Pin) -> dict[str, str]:
        return {name: way for name, way in self._ways(pin).items() if isinstance(way, str)}


def resolve(
    names: Iterable[str],
    given: Mapping[str, Path],
    cache: Path,
    runner: Runner,
    *,
    compiler_version: Version | None = None,
) -> tuple[HeaderSource, ...]:
    """The headers of some dependencies; see `HeaderSources.resolve`."""
    return HeaderSources(given, cache, runner).resolve(names, compiler_version)
