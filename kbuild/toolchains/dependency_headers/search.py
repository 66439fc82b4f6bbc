"""Finds the headers that a build uses.

In this order: a folder named on the command line, one named in the environment, kbuild's store, a
wheel that holds exactly the release, a clone of the release's tag.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.store import Store, open_store
from kbuild.system.version import Version
from kbuild.toolchains.dependency_headers.fetch import (
    PACKAGE_INDEX,
    HeaderDownload,
    git_download,
    wheel_download,
)
from kbuild.toolchains.dependency_headers.pins import (
    DependencyHeaders,
    PinnedLibrary,
    dependency_headers,
    digest_of_folders,
    pin_of,
    tree_mismatch,
)

SOURCE_OPTION = "--with-source"


def headers_of_option(pin: PinnedLibrary, folder: Path) -> DependencyHeaders:
    """The folder that the command line names; it must be right.

    Raises:
        ToolchainError: it is something else, or another release.
    """
    wrong = tree_mismatch(pin, folder)
    if wrong is None:
        return _headers_in_folder(pin, folder)
    raise ToolchainError(
        f"{SOURCE_OPTION} {pin.name}={folder}: the folder {wrong}",
        hint=f"{pin.name} is {pin.title}: give the top folder of its source tree, which holds "
        f"{', '.join(f'`{name}`' for name in (*pin.check.files, *pin.library.include))}",
    )


def headers_of_environment(
    pin: PinnedLibrary, environ: Mapping[str, str]
) -> DependencyHeaders | str:
    """The folder that the dependency's variable names, or why it is not used.

    One variable serves all releases of a library, so another release there is no mistake.
    """
    name = pin.library.source_dir
    if name is None:
        return f"no variable names a folder with {pin.library.title}"
    if not environ.get(name):
        return f"${name} is not set"
    folder = Path(os.path.expanduser(environ[name])).absolute()  # noqa: PTH111 - never fails
    wrong = tree_mismatch(pin, folder)
    return _headers_in_folder(pin, folder) if wrong is None else f"${name}: `{folder}` {wrong}"


def _headers_in_folder(pin: PinnedLibrary, folder: Path) -> DependencyHeaders:
    digest = digest_of_folders(dependency_headers(pin, folder, "", "").include_dirs)
    return dependency_headers(pin, folder, f"{folder}, sha256 {digest[:12]}", f"sha256:{digest}")


FailedAttempts = Mapping[str, str]
"""Attempt -> the reason why it failed."""


def unavailable_headers_error(pin: PinnedLibrary, tried: FailedAttempts) -> ToolchainError:
    """The error, with every way to supply the headers as commands."""
    listed = "".join(f"\n    {way}: {reason}" for way, reason in tried.items())
    folder = f"{pin.name}-{pin.version}"
    lines = [f"get {pin.title} where there is a network, then name its folder:"]
    if pin.library.repository:
        lines += [f"git clone --depth 1 --branch {pin.tag} {pin.library.repository} {folder}"]
    lines += [f"kbuild build {SOURCE_OPTION} {pin.name}={folder}"]
    if pin.library.source_dir:
        lines += [f"or, for every command: export {pin.library.source_dir}=$PWD/{folder}"]
    if pin.wheel:
        wanted = pin.wheel.locked.pin
        lines += [
            f"or, from a folder of wheels: pip download --no-deps -d wheelhouse {wanted}",
            "PIP_FIND_LINKS=$PWD/wheelhouse kbuild build",
        ]
    return ToolchainError(
        f"the headers of {pin.title} (`{pin.name}`) were not found; tried:{listed}",
        hint="\n    ".join(lines),
    )


PinLookup = Callable[[str, "Version | None"], PinnedLibrary]


@dataclass(frozen=True)
class HeaderResolver:
    """Answers for one command; what was found, or failed, is not tried again. Thread-safe."""

    given: Mapping[str, Path]
    """Folders of the command line by dependency."""
    cache: Path
    runner: Runner
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    pin_of: PinLookup = pin_of
    """Finds the library of a name in `depends`."""
    _here: dict[str, DependencyHeaders | dict[str, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _fetched: dict[str, DependencyHeaders | ToolchainError] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The store of fetched headers."""
        return open_store(self.cache)

    def unsupported_reason(
        self, names: Iterable[str], compiler: Version | None = None
    ) -> str | None:
        """The reason that headers cannot be had; None when they are here or can be tried.

        Asks no network.

        Raises:
            ToolchainError: a folder of the command line is wrong.
        """
        for name in names:
            try:
                pin = self.pin_of(name, compiler)
            except ToolchainError as error:
                return error.message
            if not isinstance(self._at_hand(pin), DependencyHeaders) and not self._downloads(pin):
                return (
                    f"needs the headers of {pin.title}, which cannot be fetched; "
                    f"{SOURCE_OPTION} {pin.name}=DIR takes a folder"
                )
        return None

    def expected(
        self, names: Iterable[str], compiler: Version | None = None
    ) -> tuple[DependencyHeaders, ...]:
        """The headers that a build would use, as far as is known without fetching anything.

        Raises:
            ToolchainError: there is no way to any of the headers.
        """
        return tuple(self._expected(self.pin_of(name, compiler)) for name in names)

    def resolve(
        self, names: Iterable[str], compiler: Version | None = None
    ) -> tuple[DependencyHeaders, ...]:
        """The headers; what is not here is fetched.

        Raises:
            ToolchainError: with everything that was tried, and how to supply them.
        """
        return tuple(self._resolved(self.pin_of(name, compiler)) for name in names)

    def _expected(self, pin: PinnedLibrary) -> DependencyHeaders:
        local_answer = self._at_hand(pin)
        if isinstance(local_answer, DependencyHeaders):
            return local_answer
        for download in self._downloads(pin):
            return download.expected(self.store)
        raise unavailable_headers_error(pin, local_answer | self._no_way(pin))

    def _resolved(self, pin: PinnedLibrary) -> DependencyHeaders:
        local_answer = self._at_hand(pin)
        if isinstance(local_answer, DependencyHeaders):
            return local_answer
        # One thread fetches; the variants that need the same headers wait for it.
        with self._lock:
            if pin.title not in self._fetched:
                self._fetched[pin.title] = self._fetch(pin, local_answer)
        answer = self._fetched[pin.title]
        if isinstance(answer, ToolchainError):
            raise answer
        return answer

    def _fetch(
        self, pin: PinnedLibrary, tried: dict[str, str]
    ) -> DependencyHeaders | ToolchainError:
        failures = {}
        for download in self._downloads(pin):
            try:
                return download.install(self.store)
            except ToolchainError as error:
                failures[download.way] = error.message
        return unavailable_headers_error(pin, tried | self._no_way(pin) | failures)

    def _at_hand(self, pin: PinnedLibrary) -> DependencyHeaders | dict[str, str]:
        """The headers if they are on this machine; else the places where they are not."""
        if pin.title not in self._here:
            self._here[pin.title] = self._look(pin)
        return self._here[pin.title]

    def _look(self, pin: PinnedLibrary) -> DependencyHeaders | dict[str, str]:
        if pin.name in self.given:
            return headers_of_option(pin, self.given[pin.name])
        named = headers_of_environment(pin, self.environ)
        if isinstance(named, DependencyHeaders):
            return named
        for download in self._downloads(pin):
            installed = download.installed(self.store)
            if installed is not None:
                return installed
        return {
            SOURCE_OPTION: "not given",
            "environment": named,
            "kbuild's store": "does not have them",
        }

    def _ways(self, pin: PinnedLibrary) -> dict[str, HeaderDownload | str]:
        return {
            PACKAGE_INDEX: wheel_download(pin, self.runner, self.environ),
            "git": git_download(pin, self.runner, self.environ, self.cache / "commits"),
        }

    def _downloads(self, pin: PinnedLibrary) -> list[HeaderDownload]:
        return [way for way in self._ways(pin).values() if isinstance(way, HeaderDownload)]

    def _no_way(self, pin: PinnedLibrary) -> dict[str, str]:
        return {name: way for name, way in self._ways(pin).items() if isinstance(way, str)}


def header_versions(headers: Sequence[DependencyHeaders]) -> tuple[tuple[str, str], ...]:
    """The releases and origins, for the record and the fingerprint."""
    return tuple((source.name, f"{source.version} ({source.origin})") for source in headers)
