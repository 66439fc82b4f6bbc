"""The configured package index, and fetching pinned wheels: local, by ranges, or whole.

unearth reads index pages (PEP 503, 691), find-links folders and credentials as pip does; what is
fetched of a file is decided here.
"""

from __future__ import annotations

import hashlib
import tempfile
import textwrap
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256_of_file
from kbuild.system.progress import count_download
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.settings import IndexSettings
from kbuild.toolchains.wheels.wheel_file import (
    HttpRangeFile,
    MemberDestination,
    NoRangesError,
    Wheel,
)

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self
    from unearth import Link, Package, PackageFinder
    from unearth.fetchers import Fetcher, PyPIClient


INDEX_HINT = "`pip config list` shows the index, the proxy and the find-links folders that are used"


class UnreachableIndexError(ToolchainError):
    """The index does not answer, or is not to be asked; with what has to be brought here then."""

    def __init__(
        self,
        reason: str,
        missing: Mapping[str, Iterable[str]] | None = None,
        instead: Sequence[str] = (),
    ) -> None:
        """Make the error.

        Args:
            reason: why it does not.
            missing: what was asked for, such as `CUDA 13.0` -> its wheels as `name==version`.
            instead: what also helps, each a sentence for the hint.
        """
        self.reason, self.missing, self.instead = reason, dict(missing or {}), tuple(instead)
        if not self.missing:
            super().__init__(reason, hint=INDEX_HINT)
            return
        pins = dict.fromkeys(pin for pins in self.missing.values() for pin in pins)
        command = textwrap.wrap(
            f"pip download --no-deps -d wheelhouse {' '.join(pins)}", 72, break_on_hyphens=False
        )
        lines = [
            *(f"{sentence}; or" for sentence in self.instead),
            "fetch the wheels where there is a network, and bring the folder here:",
            " \\\n      ".join(command),
            "export PIP_FIND_LINKS=$PWD/wheelhouse",
        ]
        are = "is" if len(self.missing) == 1 else "are"
        super().__init__(
            f"{' and '.join(self.missing)} {are} not on this machine, and {reason}",
            hint="\n    ".join(lines),
        )

    def __add__(self, other: UnreachableIndexError) -> UnreachableIndexError:
        """Combine two errors."""
        instead = dict.fromkeys((*self.instead, *other.instead))
        return UnreachableIndexError(self.reason, self.missing | other.missing, tuple(instead))


@contextmanager
def naming_missing(what: str, wheels: Iterable[LockedWheel | str], *instead: str) -> Iterator[None]:
    """Say what an index that does not answer was asked for: see `UnreachableIndexError`."""
    try:
        yield
    except UnreachableIndexError as error:
        pins = [wheel if isinstance(wheel, str) else wheel.pin for wheel in wheels]
        raise UnreachableIndexError(error.reason, {what: pins}, instead) from None


class PackageIndex:
    """Looks for wheels through pip's settings. Safe to use from several threads.

    A context manager: leaving it closes the connections.
    """

    def __init__(self, settings: IndexSettings) -> None:
        self.settings = settings
        self._known: dict[tuple[str, bool], tuple[Package, ...]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The client is a cached property: without a request there is none to close.
        if "client" in vars(self):
            self.client.close()

    @cached_property
    def client(self) -> PyPIClient:
        """HTTP with the settings' certificates, proxy, time limit and credentials."""
        from unearth.auth import MultiDomainBasicAuth
        from unearth.fetchers import PyPIClient

        urls = [url for url in (self.settings.index_url, *self.settings.extra_index_urls) if url]
        client = PyPIClient(
            trusted_hosts=self.settings.trusted_hosts,
            verify=self._verification(),
            cert=self.settings.client_cert,
            timeout=self.settings.timeout,
            proxy=self.settings.proxy,
            follow_redirects=True,
        )
        # Builds run without anybody who could type a password.
        client.auth = MultiDomainBasicAuth(prompting=False, index_urls=urls)
        return client

    def files(self, project: str, *, only_here: bool = False) -> tuple[Package, ...]:
        """Every wheel of a project, newest version first, whatever platform it is for.

        Raises:
            UnreachableIndexError: the index cannot be reached.
        """
        key = (project, only_here)
        with self._lock:  # pages are asked for at the same time, of one client
            finder = self._finder_here if only_here else self._finder
            known = self._known.get(key)
        if known is None:
            known = self._known[key] = _find_wheels(finder, project) if finder.sources else ()
        return known

    def has_any(self, wheels: Sequence[LockedWheel]) -> bool:
        """True when one of the wheels is there.

        Raises:
            UnreachableIndexError: the index cannot be reached.
        """
        names = {wheel.filename for wheel in wheels}
        return bool(wheels) and bool(self._named(names, wheels[0].project))

    def locate(self, wheels: Sequence[LockedWheel]) -> tuple[LockedWheel, Link]:
        """The first of the wheels that there is; files on this machine go first.

        Raises:
            ToolchainError: there is none of them, or the index cannot be reached.
        """
        names = {wheel.filename: place for place, wheel in enumerate(wheels)}
        links = self._named(names, wheels[0].project)
        if not links:
            others = f" (or {len(wheels) - 1} like it)" if len(wheels) > 1 else ""
            absent = f"has no {wheels[0].filename}{others}"
            if self.settings.no_index:
                raise UnreachableIndexError(f"pip's `no-index` is set; find-links {absent}")
            raise ToolchainError(f"the package index {absent}", hint=INDEX_HINT)
        best = min(links, key=lambda link: names[link.filename])
        return wheels[names[best.filename]], best

    def _named(self, names: Collection[str], project: str) -> list[Link]:
        """The files of these names; the index is asked only when this machine has none of them."""
        # Files on this machine go first, so that a full find-links folder needs no network.
        for only_here in (True, False):
            packages = self.files(project, only_here=only_here)
            links = [package.link for package in packages if package.link.filename in names]
            if links:
                return links
        return []

    @cached_property
    def _finder(self) -> PackageFinder:
        from unearth import PackageFinder

        # With no place named at all, a finder looks at the public index.
        settings = self.settings
        own = [settings.index_url] if settings.index_url else []
        client = cast("Fetcher", self.client)  # its signatures say more than the protocol's
        finder = PackageFinder(client, index_urls=own, ignore_compatibility=True)
        if settings.no_index:
            finder.sources.clear()
        for url in () if settings.no_index else settings.extra_index_urls:
            finder.add_index_url(url)
        for place in [
            place for place in settings.find_links if "://" in place or Path(place).exists()
        ]:
            finder.add_find_links(place)
        return finder

    @cached_property
    def _finder_here(self) -> PackageFinder:
        from unearth import PackageFinder

        finder = PackageFinder(cast("Fetcher", self.client), ignore_compatibility=True)
        finder.sources[:] = [
            source
            for source in self._finder.sources
            if "://" not in source["url"] or source["url"].startswith("file:")
        ]
        return finder

    def _verification(self) -> ssl.SSLContext | bool:
        import ssl

        cert = self.settings.cert
        if cert is None:
            return True
        if Path(cert).is_dir():
            return ssl.create_default_context(capath=cert)
        return ssl.create_default_context(cafile=cert)


def _find_wheels(finder: PackageFinder, project: str) -> tuple[Package, ...]:
    from httpx2 import HTTPError
    from unearth.errors import UnpackError, URLError

    try:
        # A pinned file stays the right one when its release is withdrawn.
        packages = finder.find_all_packages(project, allow_yanked=True)
        return tuple(package for package in packages if package.link.is_wheel)
    except (HTTPError, URLError, UnpackError, OSError) as error:
        reason = f"the package index cannot be queried for {project}: {error}"
        raise UnreachableIndexError(reason) from None


_BLOCK = 1 << 20
_TRIES = 3
_MAX_WHEEL_BYTES = 16 << 30
"""Bytes of the largest wheel, where nobody says how large it is."""


@dataclass(frozen=True)
class FetchedWheel:
    """The origin of an entry's files."""

    filename: str
    sha256: str
    size: int
    """Bytes of the whole wheel."""
    fetched: int
    """Bytes that came over the network."""
    how: Literal["local", "ranges", "whole"]

    def to_json(self) -> dict[str, Any]:
        """The source as a JSON object."""
        return dict(vars(self))


@dataclass(frozen=True)
class WheelFetcher:
    """Unpacks members of pinned wheels."""

    index: PackageIndex

    def unpack(
        self, wheels: Sequence[LockedWheel], folder: Path, place: MemberDestination
    ) -> FetchedWheel:
        """Unpack what `place` wants of the first wheel that there is.

        Args:
            wheels: equivalent ones; files on this machine go first.
            folder: where the members go; its parent holds temporary files meanwhile.
            place: see `MemberDestination`.

        Raises:
            ToolchainError: no wheel is there, or one is not what the lock says.
        """
        locked, link = self.index.locate(wheels)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            if link.is_file:
                _reject_other_file(locked, sha256_of_file(link.file_path))
                _unpack_and_close(Wheel(locked, link.file_path), folder, place)
                return FetchedWheel(locked.filename, locked.sha256, locked.size, 0, "local")
            try:
                return self._by_ranges(locked, link, Path(scratch, "ranges"), folder, place)
            except NoRangesError:  # a mirror that has whole files only
                return self._whole(locked, link, Path(scratch, "whole.whl"), folder, place)

    def _by_ranges(
        self, locked: LockedWheel, link: Link, copy: Path, folder: Path, place: MemberDestination
    ) -> FetchedWheel:
        # Nothing would verify parts of the file: the lock has only the digest of the whole.
        if locked.record is None:
            raise NoRangesError
        url = link.url_without_fragment
        with HttpRangeFile(self.index.client, url, locked.size, copy) as remote:
            _unpack_and_close(Wheel(locked, remote), folder, place)
            return FetchedWheel(
                locked.filename, locked.sha256, locked.size, remote.fetched, "ranges"
            )

    def _whole(
        self, locked: LockedWheel, link: Link, copy: Path, folder: Path, place: MemberDestination
    ) -> FetchedWheel:
        _reject_other_file(locked, self._download(link, copy, locked.size))
        _unpack_and_close(Wheel(locked, copy), folder, place)
        size = copy.stat().st_size
        return FetchedWheel(locked.filename, locked.sha256, locked.size, size, "whole")

    def _download(self, link: Link, target: Path, size: int) -> str:
        """Fetch a whole file of `size` bytes, 0 when unknown; returns its SHA-256."""
        from httpx2 import HTTPError

        for attempt in range(1, _TRIES + 1):
            try:
                return self._stream(link, target, size or _MAX_WHEEL_BYTES)
            except HTTPError as error:
                if attempt == _TRIES:
                    what = f"{link.filename} cannot be fetched: {error}"
                    raise ToolchainError(what, hint=INDEX_HINT) from None
        raise AssertionError  # the last attempt returns or raises

    def _stream(self, link: Link, target: Path, most: int) -> str:
        digest, size = hashlib.sha256(), 0
        headers = {"Accept-Encoding": "identity"}
        url = link.url_without_fragment
        with (
            self.index.client.stream("GET", url, headers=headers) as response,
            target.open("wb") as file,
        ):
            response.raise_for_status()
            for block in response.iter_raw():
                size += len(block)
                if size > most:
                    raise ToolchainError(
                        f"{link.filename} is larger than the {most} bytes that it should have",
                        hint="this index serves another file under that name",
                    )
                digest.update(block)
                file.write(block)
                count_download(len(block))
        return digest.hexdigest()


def _unpack_and_close(wheel: Wheel, folder: Path, place: MemberDestination) -> None:
    try:
        wheel.unpack(folder, place)
    finally:
        wheel.close()


def _reject_other_file(locked: LockedWheel, digest: str) -> None:
    if digest != locked.sha256:
        raise ToolchainError(
            f"{locked.filename} is not the file that the lock names: its SHA-256 is {digest}",
            hint="remove the file: the index serves another one under that name",
        )
