"""From a pinned wheel to an opened one: the local file, ranges of the remote one, or all of it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbuild.errors import ToolchainError
from kbuild.fileset import sha256_of_file
from kbuild.scratch import scratch_folder
from kbuild.toolchains.wheels.archive import Place, Wheel
from kbuild.toolchains.wheels.index import MEND, Index
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.remote import NoRangesError, RemoteFile

if TYPE_CHECKING:
    from unearth import Link

_BLOCK = 1 << 20
_TRIES = 3
_LARGEST = 16 << 30
"""Bytes of the largest wheel, where nobody says how large it is."""


@dataclass(frozen=True)
class Fetched:
    """Where an entry's files came from."""

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
class Fetcher:
    """Unpacks members of pinned wheels."""

    index: Index

    def unpack(self, wheels: Sequence[LockedWheel], folder: Path, place: Place) -> Fetched:
        """Unpack what `place` wants of the first wheel that there is.

        Args:
            wheels: equivalent ones; files on this machine go first.
            folder: where the members go; its parent holds temporary files meanwhile.
            place: see `archive.Place`.

        Raises:
            ToolchainError: no wheel is there, or one is not what the lock says.
        """
        locked, link = self.index.locate(wheels)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            if link.is_file:
                return self._local(locked, link.file_path, folder, place)
            try:
                return self._by_ranges(locked, link, Path(scratch, "ranges"), folder, place)
            except NoRangesError:
                return self._whole(locked, link, Path(scratch, "whole.whl"), folder, place)

    @contextmanager
    def peek(self, locked: LockedWheel, link: Link) -> Iterator[Wheel]:
        """A wheel to look into; nothing is checked but the members' CRC-32."""
        with scratch_folder("wheel") as scratch:
            if link.is_file:
                wheel = Wheel(locked, link.file_path)
            else:
                copy = scratch / "ranges"
                url = link.url_without_fragment
                wheel = Wheel(locked, RemoteFile(self.index.client, url, locked.size, copy))
            try:
                yield wheel
            finally:
                wheel.close()

    def _local(self, locked: LockedWheel, path: Path, folder: Path, place: Place) -> Fetched:
        _refuse_other(locked, sha256_of_file(path))
        _unpack(Wheel(locked, path), folder, place)
        return Fetched(locked.filename, locked.sha256, locked.size, 0, "local")

    def _by_ranges(
        self, locked: LockedWheel, link: Link, copy: Path, folder: Path, place: Place
    ) -> Fetched:
        if locked.record is None:
            raise NoRangesError
        url = link.url_without_fragment
        with RemoteFile(self.index.client, url, locked.size, copy) as remote:
            _unpack(Wheel(locked, remote), folder, place)
            return Fetched(locked.filename, locked.sha256, locked.size, remote.fetched, "ranges")

    def _whole(
        self, locked: LockedWheel, link: Link, copy: Path, folder: Path, place: Place
    ) -> Fetched:
        _refuse_other(locked, self._download(link, copy, locked.size))
        _unpack(Wheel(locked, copy), folder, place)
        size = copy.stat().st_size
        return Fetched(locked.filename, locked.sha256, locked.size, size, "whole")

    def _download(self, link: Link, target: Path, size: int) -> str:
        """Fetch a whole file of `size` bytes, 0 when unknown; returns its SHA-256."""
        from httpx2 import HTTPError

        for attempt in range(1, _TRIES + 1):
            try:
                return self._stream(link, target, size or _LARGEST)
            except HTTPError as error:
                if attempt == _TRIES:
                    what = f"{link.filename} cannot be fetched: {error}"
                    raise ToolchainError(what, hint=MEND) from None
        raise AssertionError  # the last attempt returns or raises

    def _stream(self, link: Link, target: Path, most: int) -> str:
        found, size = hashlib.sha256(), 0
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
                found.update(block)
                file.write(block)
        return found.hexdigest()


def _unpack(wheel: Wheel, folder: Path, place: Place) -> None:
    try:
        wheel.unpack(folder, place)
    finally:
        wheel.close()


def _refuse_other(locked: LockedWheel, digest: str) -> None:
    if digest != locked.sha256:
        raise ToolchainError(
            f"{locked.filename} is not the file that the lock names: its SHA-256 is {digest}",
            hint="take the file away, or pin it with `kbuild toolchain lock`",
        )
