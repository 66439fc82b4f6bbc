"""The configured package index: which files there are, and a client that can fetch them.

unearth reads index pages (PEP 503, 691), find-links folders and credentials as pip does; what is
wanted of a file is decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kbuild.errors import ToolchainError
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.settings import IndexSettings

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self
    from unearth import Link, Package, PackageFinder
    from unearth.fetchers import Fetcher, PyPIClient

MEND = "`pip config list` shows the index, the proxy and the find-links folders that are used"


class Index:
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
        client.auth = MultiDomainBasicAuth(prompting=False, index_urls=urls)
        return client

    def files(self, project: str, *, only_here: bool = False) -> tuple[Package, ...]:
        """Every wheel of a project, newest version first, whatever platform it is for.

        Args:
            project: its name.
            only_here: leave out what is not on this machine, and ask no server.

        Raises:
            ToolchainError: the index cannot be reached.
        """
        key = (project, only_here)
        with self._lock:  # pages are asked for at the same time, of one client
            finder = self._finder_here if only_here else self._finder
            known = self._known.get(key)
        if known is None:
            known = self._known[key] = _ask(finder, project) if finder.sources else ()
        return known

    def has_any(self, wheels: Sequence[LockedWheel]) -> bool:
        """True when one of the wheels is there.

        Raises:
            ToolchainError: the index cannot be reached.
        """
        names = {wheel.filename for wheel in wheels}
        files = self.files(wheels[0].project) if wheels else ()
        return any(package.link.filename in names for package in files)

    def locate(self, wheels: Sequence[LockedWheel]) -> tuple[LockedWheel, Link]:
        """The first of the wheels that there is; files on this machine go first.

        Raises:
            ToolchainError: there is none of them, or the index cannot be reached.
        """
        names = {wheel.filename: place for place, wheel in enumerate(wheels)}
        packages = self.files(wheels[0].project)
        links = [package.link for package in packages if package.link.filename in names]
        if not links:
            others = f" (or {len(wheels) - 1} like it)" if len(wheels) > 1 else ""
            raise ToolchainError(
                f"the package index has no {wheels[0].filename}{others}", hint=MEND
            )
        best = min(links, key=lambda link: (not link.is_file, names[link.filename]))
        return wheels[names[best.filename]], best

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
        for place in _existing(settings.find_links):
            finder.add_find_links(place)
        return finder

    @cached_property
    def _finder_here(self) -> PackageFinder:
        from unearth import PackageFinder

        finder = PackageFinder(cast("Fetcher", self.client), ignore_compatibility=True)
        finder.sources[:] = [one for one in self._finder.sources if _is_here(one["url"])]
        return finder

    def _verification(self) -> ssl.SSLContext | bool:
        import ssl

        cert = self.settings.cert
        if cert is None:
            return True
        if Path(cert).is_dir():
            return ssl.create_default_context(capath=cert)
        return ssl.create_default_context(cafile=cert)


def _ask(finder: PackageFinder, project: str) -> tuple[Package, ...]:
    from httpx2 import HTTPError
    from unearth.errors import UnpackError, URLError

    try:
        found = finder.find_all_packages(project, allow_yanked=True)
        return tuple(package for package in found if package.link.is_wheel)
    except (HTTPError, URLError, UnpackError, OSError) as error:
        what = f"the package index cannot be asked for {project}: {error}"
        raise ToolchainError(what, hint=MEND) from None


def _is_here(place: str) -> bool:
    return "://" not in place or place.startswith("file:")


def _existing(places: Iterable[str]) -> list[str]:
    """URLs, and folders that exist: pip passes over the others too."""
    return [place for place in places if "://" in place or Path(place).exists()]
