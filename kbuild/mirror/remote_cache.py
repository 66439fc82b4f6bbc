"""The shared cache of `KBUILD_REMOTE_CACHE`: its settings, and its files in any mirror's store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kbuild.errors import HubError, UsageError
from kbuild.hub.repository import NotFoundError
from kbuild.mirror import open_mirror
from kbuild.mirror.store import MirrorAddress, MirrorStore, is_url, parse_mirror_address
from kbuild.runtime.remote_cache import REMOTE_CACHE_VARIABLE, RemoteCache

MODE_VARIABLE = "KBUILD_REMOTE_CACHE_MODE"
SECRET_VARIABLE = "KBUILD_REMOTE_CACHE_SECRET"  # noqa: S105 - the variable's name
_MODES = ("read", "read-write")
_READ_ONLY = re.compile(r"https?://", flags=re.IGNORECASE)
_SHORTEST_SECRET = 16


class MirrorFiles:
    """See `RemoteStore`."""

    def __init__(self, store: MirrorStore) -> None:
        self._store = store

    @property
    def shown(self) -> str:
        """See `RemoteStore.shown`."""
        return self._store.shown

    def read(self, path: str, limit: int) -> bytes | None:
        """See `RemoteStore.read`."""
        data = bytearray()
        try:
            for block in self._store.blocks(path):
                data += block
                if len(data) > limit:
                    raise HubError(f"`{path}` has more than {limit} bytes")
        except NotFoundError:
            return None
        return bytes(data)

    def write(self, path: str, data: bytes) -> None:
        """See `RemoteStore.write`."""
        self._store.write(path, data)


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
            hint="write `file:///FOLDER`, `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `https://...`",
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
        lambda: MirrorFiles(open_mirror(address)),
        address.shown,
        warn,
        writes=mode != _MODES[0],
        secret=secret,
    )
