"""A mirror in whatever fsspec reaches: S3, GCS, Azure, SFTP, memory, HTTP to read.

Credentials, endpoints and proxies are the business of fsspec and its drivers. Their exceptions are
translated into kbuild's errors, with the secrets of the address removed.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kbuild import manual_page
from kbuild.errors import (
    HubError,
    KbuildError,
    ToolchainError,
    UsageError,
    error_chain,
    install_command,
)
from kbuild.hub.repository import AccessDeniedError, BusyError, NotFoundError
from kbuild.mirror.store import MAX_SMALL_FILE, MirrorAddress, require_small

_BUSY = (408, 425, 429, 500, 502, 503, 504)
_DENIED = (401, 403)
_NOT_FOUND, _NOT_SUPPORTED = 404, (405, 501)
_PERMANENT_ERRORS = (
    errno.ENOSPC, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EDQUOT,
)  # fmt: skip
_NETWORK = ("aiohttp", "asyncio", "botocore", "aiobotocore", "paramiko", "httpx", "requests")
_ACCESS = (
    f"its driver reads credentials from the environment; see {manual_page('how-to/mirror.md')}"
)
_LATER = "run the command again: what has arrived is not sent again"


def translate_store_error(error: Exception, address: MirrorAddress, what: str) -> KbuildError:
    """The error to raise instead. `what` follows "... was asked"."""
    asked = f"{address.shown} was asked {what}"
    first = next(iter(str(error).strip().splitlines()), "")
    reason = address.without_secrets(f"{type(error).__name__}: {first}"[:300])
    if isinstance(error, NotImplementedError) or _status(error) in _NOT_SUPPORTED:
        hint = "mirrors over HTTP can only be read" if address.text.startswith("http") else ""
        return UsageError(f"the store does not support this: {asked}", hint=hint)
    if isinstance(error, FileNotFoundError) or _status(error) == _NOT_FOUND:
        return NotFoundError(f"the store found nothing when {asked}")
    name = type(error).__name__
    known = "Credential" in name or "Authentication" in name
    is_denied = isinstance(error, PermissionError) or known or _status(error) in _DENIED
    if is_denied:
        return AccessDeniedError(f"the store refused access when {asked}: {reason}", hint=_ACCESS)
    if _is_busy(error):
        return BusyError(f"the store did not answer properly when {asked}: {reason}", hint=_LATER)
    return HubError(f"the store failed when {asked}: {reason}")


def _is_busy(error: Exception) -> bool:
    status = _status(error)
    if status is not None:
        return status in _BUSY
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _PERMANENT_ERRORS:
        return False
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _NETWORK


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error or one of its causes carries, wherever drivers keep it."""
    for cause in error_chain(error):
        response: Any = getattr(cause, "response", None)
        metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        statuses = (
            getattr(cause, "status", None),
            getattr(cause, "code", None),
            getattr(response, "status_code", None),
            metadata.get("HTTPStatusCode"),
        )
        for status in statuses:
            if isinstance(status, int) and 400 <= status < 600:  # noqa: PLR2004
                return status
    return None


_BLOCK = 1 << 20
_PARALLEL_WORKERS, _SINGLE_WORKER = 8, 1
_THREAD_SAFE_DRIVERS = ("memory", "file", "local")
"""Drivers that several threads may use although they do not say so."""
_ATOMIC_DRIVERS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "oss", "cos", "memory")
"""Where a file appears when all of it has arrived, and folders need not be made."""
_TEMPORARY = ".kbuild-new"


class FsspecStore:
    """See `MirrorStore`. Links there are none."""

    verifies_copies = False

    def __init__(self, address: MirrorAddress) -> None:
        self._address = address
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ToolchainError(
                f"{address.shown} needs fsspec", hint=install_command("fsspec")
            ) from error
        try:
            files, root = url_to_fs(address.text)
        except ImportError as error:
            hint = address.without_secrets(str(error))
            raise ToolchainError(f"{address.shown} needs a driver of fsspec", hint=hint) from error
        except ValueError as error:
            message = f"no driver can open `{address.shown}`: {address.without_secrets(str(error))}"
            raise UsageError(message) from error
        except Exception as error:
            raise translate_store_error(error, address, "for a connection") from error
        self._fs, self._root = files, str(root).rstrip("/")
        names = self._fs.protocol
        protocols = {names} if isinstance(names, str) else {*names}
        parallel = bool(
            getattr(self._fs, "async_impl", False) or protocols & {*_THREAD_SAFE_DRIVERS}
        )
        self.workers = _PARALLEL_WORKERS if parallel else _SINGLE_WORKER
        self._is_whole = bool(protocols & {*_ATOMIC_DRIVERS})

    @property
    def shown(self) -> str:
        """See `MirrorStore.shown`."""
        return self._address.shown

    def blocks(self, path: str) -> Iterator[bytes]:
        """See `MirrorStore.blocks`."""
        with self._said(f"for `{path}`"), self._fs.open(self._full(path), "rb") as file:
            while block := file.read(_BLOCK):
                yield block

    def read(self, path: str) -> bytes:
        """See `MirrorStore.read`."""
        with self._said(f"for `{path}`"), self._fs.open(self._full(path), "rb") as file:
            data: bytes = file.read(MAX_SMALL_FILE + 1)
        return require_small(data, f"{self.shown}/{path}", MAX_SMALL_FILE)

    def fetch(self, path: str, limit: int) -> bytes:
        """See `MirrorStore.fetch`."""
        with self._said(f"for `{path}`"):
            data: bytes = self._fs.cat_file(self._full(path), start=0, end=limit + 1)
        return require_small(data, f"{self.shown}/{path}", limit)

    def write(self, path: str, source: Path | bytes) -> None:
        """See `MirrorStore.write`."""
        target = self._full(path)
        with self._said(f"to keep `{path}`"):
            if self._is_whole:
                self._put(source, target)
                return
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._put(source, f"{target}{_TEMPORARY}")
            self._fs.mv(f"{target}{_TEMPORARY}", target)

    def duplicate(self, old: str, new: str) -> None:
        """See `MirrorStore.duplicate`. Inside the store, where its driver can do that."""
        source, target = self._full(old), self._full(new)
        with self._said(f"to copy `{old}`"):
            if not self._is_whole:
                self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            try:
                self._fs.cp_file(source, target)
            except NotImplementedError:
                with self._fs.open(source, "rb") as read, self._fs.open(target, "wb") as write:
                    shutil.copyfileobj(read, write, _BLOCK)

    def names(self, folder: str) -> tuple[str, ...]:
        """See `MirrorStore.names`."""
        try:
            with self._said(f"for what is in `{folder}`"):
                self._fs.invalidate_cache()
                paths = self._fs.ls(self._full(folder), detail=False)
        except NotFoundError:
            return ()
        return tuple(sorted({path.rstrip("/").rpartition("/")[2] for path in paths} - {""}))

    def sizes(self, folder: str) -> dict[str, int]:
        """See `MirrorStore.sizes`."""
        facts_by_path = self._files(folder)
        return {path: int(facts.get("size") or 0) for path, facts in facts_by_path.items()}

    def _files(self, folder: str) -> dict[str, dict[str, Any]]:
        """What the driver says of every file below a folder, by path inside it."""
        top = f"{self._full(folder)}/"
        try:
            with self._said(f"for what is in `{folder}`"):
                self._fs.invalidate_cache()
                files: dict[str, dict[str, Any]] = self._fs.find(top.rstrip("/"), detail=True)
        except NotFoundError:
            return {}
        return {
            path.removeprefix(top): facts
            for path, facts in files.items()
            if path.startswith(top) and not path.endswith(_TEMPORARY)
        }

    def remove(self, paths: Iterable[str]) -> None:
        """See `MirrorStore.remove`."""
        folders: set[str] = set()
        for path in paths:
            with suppress(NotFoundError), self._said(f"to remove `{path}`"):
                self._fs.rm_file(self._full(path))
            parts = path.split("/")[:-1]
            folders |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
        if not self._is_whole:
            for folder in sorted(folders, key=len, reverse=True):
                with suppress(Exception):  # what is not empty stays
                    self._fs.rmdir(self._full(folder))

    def point(self, link: str, target: str) -> bool:
        """See `MirrorStore.point`."""
        del link, target
        return False

    def target(self, link: str) -> str | None:
        """See `MirrorStore.target`."""
        del link
        return None

    @contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """See `MirrorStore.alone`: stores have no locks."""
        del path
        yield

    def _put(self, source: Path | bytes, target: str) -> None:
        if isinstance(source, bytes):
            self._fs.pipe_file(target, source)
        else:
            self._fs.put_file(str(source), target)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextmanager
    def _said(self, what: str) -> Iterator[None]:
        try:
            yield
        except KbuildError:
            raise
        except Exception as error:
            raise translate_store_error(error, self._address, what) from error
