"""The shared cache of `KBUILD_REMOTE_CACHE`: its settings, and its files in any mirror's store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import ToolchainError, UsageError, install_command
from kbuild.hub.repository import NotFoundError
from kbuild.mirror import open_mirror
from kbuild.mirror.store import MirrorAddress, MirrorStore, is_url, parse_mirror_address
from kbuild.runtime.remote_cache import LAYOUT, REMOTE_CACHE_VARIABLE, RemoteCache

MODE_VARIABLE = "KBUILD_REMOTE_CACHE_MODE"
SECRET_VARIABLE = "KBUILD_REMOTE_CACHE_SECRET"  # noqa: S105 - the variable's name
SIZE_VARIABLE = "KBUILD_REMOTE_CACHE_SIZE"
_MODES = ("read", "read-write")
_DRIVERS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs",
    "http": "aiohttp", "https": "aiohttp",
}  # fmt: skip
"""Packages that fsspec needs by kind of address; it names those of other kinds."""
_ADDRESS_HINT = (
    "write `file:///FOLDER`, `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `https://...`"
)
_READ_ONLY = re.compile(r"https?://", flags=re.IGNORECASE)
_SHORTEST_SECRET = 16


@dataclass(frozen=True)
class StoredEntry:
    """One file of a shared cache."""

    path: str
    """`<kind>/...`, below the folder of the layout."""
    size: int
    """Bytes."""
    used: float
    """When it was last used or, in stores that do not tell, written; seconds since the epoch."""

    @property
    def kind(self) -> str:
        """`objects`, `images`, `verdicts` and so on."""
        return self.path.partition("/")[0]


class MirrorFiles:
    """See `RemoteStore`."""

    def __init__(self, address: MirrorAddress) -> None:
        """Connect.

        Raises:
            ToolchainError: fsspec, or the driver that it needs for this address, is not installed.
            UsageError: fsspec knows no such kind of address.
            HubError: there is no connection.
        """
        scheme = address.text.partition("://")[0].lower()
        try:
            self._store: MirrorStore = open_mirror(address)
        except ToolchainError as error:
            hint = install_command(_DRIVERS.get(scheme, "fsspec"))
            message = f"{REMOTE_CACHE_VARIABLE}: {error.message}"
            raise ToolchainError(message, hint=hint) from error
        except UsageError as error:
            message = f"{REMOTE_CACHE_VARIABLE}: {error.message}"
            raise UsageError(message, hint=error.hint or _ADDRESS_HINT) from error
        self._folder = address.folder

    @property
    def shown(self) -> str:
        """See `RemoteStore.shown`."""
        return self._store.shown

    def read(self, path: str, limit: int) -> bytes | None:
        """See `RemoteStore.read`."""
        if self._folder is not None:
            with suppress(OSError):  # a folder that others own
                os.utime(self._folder / path)  # the last use, for a sweep
        try:
            return self._store.fetch(path, limit)
        except NotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """See `RemoteStore.write`."""
        self._store.write(path, data)

    def entries(self) -> list[StoredEntry]:
        """Every file of the cache, the one that was not used for longest first."""
        sizes, times = self._store.sizes(LAYOUT), self._store.times(LAYOUT)
        entries = [StoredEntry(path, size, times.get(path, 0.0)) for path, size in sizes.items()]
        return sorted(entries, key=lambda entry: (entry.used, entry.path))

    def sweep(self, limit: int, *, dry_run: bool = False) -> list[StoredEntry]:
        """Remove what was not used for longest until `limit` bytes are left; what was removed."""
        entries = self.entries()
        size, removed = sum(entry.size for entry in entries), []
        for entry in entries:
            if size <= limit:
                break
            removed.append(entry)
            size -= entry.size
        if not dry_run:
            self._store.remove(f"{LAYOUT}/{entry.path}" for entry in removed)
        return removed


def remote_cache_address(environ: Mapping[str, str]) -> MirrorAddress | None:
    """Where the shared cache is; None where there is none.

    Raises:
        UsageError: the variable is no address.
    """
    text = environ.get(REMOTE_CACHE_VARIABLE, "").strip()
    if not text:
        return None
    if not is_url(text):
        raise UsageError(
            f"{REMOTE_CACHE_VARIABLE}: `{text}` is not an address",
            hint=_ADDRESS_HINT,
        )
    return parse_mirror_address(text, Path("/"))


def remote_cache_of(environ: Mapping[str, str], warn: Callable[[str], None]) -> RemoteCache | None:
    """The shared cache that the environment names; None where it names none.

    Raises:
        UsageError: a variable has a bad value, or there is no such kind of address.
        ToolchainError: fsspec, or the driver for this address, is not installed.
    """
    address = remote_cache_address(environ)
    if address is None:
        return None
    is_web = _READ_ONLY.match(address.text) is not None
    mode = environ.get(MODE_VARIABLE) or _MODES[0 if is_web else 1]
    if mode not in _MODES:
        hint = f"write {' or '.join(f'`{known}`' for known in _MODES)}"
        raise UsageError(f"{MODE_VARIABLE}: `{mode}` is not a mode", hint=hint)
    if is_web and mode != _MODES[0]:
        hint = f"unset {MODE_VARIABLE}, or name the store behind {address.shown}"
        raise UsageError(f"{MODE_VARIABLE}: a cache over HTTP can only be read", hint=hint)
    secret = environ.get(SECRET_VARIABLE, "").encode()
    if secret and len(secret) < _SHORTEST_SECRET:
        hint = "`openssl rand -hex 32` writes a good one"
        raise UsageError(
            f"{SECRET_VARIABLE} has fewer than {_SHORTEST_SECRET} characters", hint=hint
        )
    return RemoteCache(
        lambda: MirrorFiles(address),
        address.shown,
        warn,
        writes=mode != _MODES[0],
        secret=secret,
    )
