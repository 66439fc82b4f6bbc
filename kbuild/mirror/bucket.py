"""A mirror in whatever fsspec reaches: S3, Google's storage, Azure, SFTP, memory, HTTP to read.

Credentials, endpoints and proxies are the business of fsspec and of its drivers. What they raise is
said again in words of kbuild, with the secrets of the address taken out.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kbuild.errors import KbuildError, ToolchainError, UsageError
from kbuild.hub.remote import Missing
from kbuild.mirror.address import Address
from kbuild.mirror.refusals import in_words
from kbuild.mirror.store import SMALL, bounded

_BLOCK = 1 << 20
_MANY, _ONE = 8, 1
_AT_ONCE = ("memory", "file", "local")
"""Drivers that several threads may use although they do not say so."""
_WHOLE = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "oss", "cos", "memory")
"""Where a file appears when all of it has arrived, and folders need not be made."""
_TEMPORARY = ".kbuild-new"


class Bucket:
    """See `Store`. Links there are none."""

    rereads = False

    def __init__(self, address: Address) -> None:
        self._address = address
        self._fs, self._root = _opened(address)
        names = self._fs.protocol
        protocols = {names} if isinstance(names, str) else {*names}
        parallel = bool(getattr(self._fs, "async_impl", False) or protocols & {*_AT_ONCE})
        self.workers = _MANY if parallel else _ONE
        self._is_whole = bool(protocols & {*_WHOLE})

    @property
    def shown(self) -> str:
        """See `Store.shown`."""
        return self._address.shown

    def blocks(self, path: str) -> Iterator[bytes]:
        """See `Store.blocks`."""
        with self._said(f"for `{path}`"), self._fs.open(self._full(path), "rb") as file:
            while block := file.read(_BLOCK):
                yield block

    def read(self, path: str) -> bytes:
        """See `Store.read`."""
        with self._said(f"for `{path}`"), self._fs.open(self._full(path), "rb") as file:
            return bounded(file.read(SMALL + 1), f"{self.shown}/{path}")

    def write(self, path: str, source: Path | bytes) -> None:
        """See `Store.write`."""
        target = self._full(path)
        with self._said(f"to keep `{path}`"):
            if self._is_whole:
                self._put(source, target)
                return
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._put(source, f"{target}{_TEMPORARY}")
            self._fs.mv(f"{target}{_TEMPORARY}", target)

    def duplicate(self, old: str, new: str) -> None:
        """See `Store.duplicate`. Inside the store, where its driver can do that."""
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
        """See `Store.names`."""
        try:
            with self._said(f"for what is in `{folder}`"):
                self._fs.invalidate_cache()
                found = self._fs.ls(self._full(folder), detail=False)
        except Missing:
            return ()
        return tuple(sorted({path.rstrip("/").rpartition("/")[2] for path in found} - {""}))

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Store.sizes`."""
        top = f"{self._full(folder)}/"
        try:
            with self._said(f"for what is in `{folder}`"):
                self._fs.invalidate_cache()
                found: dict[str, dict[str, Any]] = self._fs.find(top.rstrip("/"), detail=True)
        except Missing:
            return {}
        return {
            path.removeprefix(top): int(told.get("size") or 0)
            for path, told in found.items()
            if path.startswith(top) and not path.endswith(_TEMPORARY)
        }

    def remove(self, paths: Iterable[str]) -> None:
        """See `Store.remove`."""
        folders: set[str] = set()
        for path in paths:
            with suppress(Missing), self._said(f"to remove `{path}`"):
                self._fs.rm_file(self._full(path))
            parts = path.split("/")[:-1]
            folders |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
        if not self._is_whole:
            for folder in sorted(folders, key=len, reverse=True):
                with suppress(Exception):  # what is not empty stays
                    self._fs.rmdir(self._full(folder))

    def point(self, link: str, target: str) -> bool:
        """See `Store.point`."""
        del link, target
        return False

    def target(self, link: str) -> str | None:
        """See `Store.target`."""
        del link
        return None

    @contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """See `Store.alone`: stores have no locks."""
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
            raise in_words(error, self._address, what) from error


def _opened(address: Address) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ToolchainError(
            f"{address.shown} needs fsspec", hint="pip install 'kbuild[publish]'"
        ) from error
    try:
        files, root = url_to_fs(address.text)
    except ImportError as error:
        hint = address.hidden(str(error))
        raise ToolchainError(f"{address.shown} needs a driver of fsspec", hint=hint) from error
    except ValueError as error:
        words = f"`{address.shown}` is no place for a mirror: {address.hidden(str(error))}"
        raise UsageError(words) from error
    except Exception as error:
        raise in_words(error, address, "for a connection") from error
    return files, str(root).rstrip("/")
