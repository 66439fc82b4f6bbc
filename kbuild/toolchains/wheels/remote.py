"""A file on a server as a file here: what is read is fetched by HTTP ranges, once.

The bytes lie in a sparse local copy, so memory does not grow with the file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.errors import ToolchainError

if TYPE_CHECKING:
    from httpx2 import Client, Response

Span = tuple[int, int]
"""First byte, and the byte after the last."""

GAP = 256 * 1024
"""Bytes that are fetched needlessly rather than by a request of their own."""
_BLOCK = 64 * 1024
_TRIES = 3
_PARTIAL_CONTENT = 206


class NoRangesError(ToolchainError):
    """The server sends whole files only."""

    def __init__(self, message: str = "the index sends whole files only") -> None:
        super().__init__(message)


class RemoteFile(io.RawIOBase):
    """Read-only and seekable, as `zipfile` wants it."""

    def __init__(self, client: Client, url: str, size: int, copy: Path) -> None:
        self.fetched = 0
        """Bytes that came over the network."""
        self._client, self._url, self._size = client, url, size
        self._spans: list[Span] = []
        self._place = 0
        self._copy = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def close(self) -> None:
        """Let go of the copy."""
        if not self.closed:
            os.close(self._copy)
        super().close()

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.IOBase.seek`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        """See `io.IOBase.tell`."""
        return self._place

    def read(self, size: int = -1) -> bytes:
        """See `io.RawIOBase.read`; fetches what is not here yet."""
        stop = self._size if size < 0 else min(self._size, self._place + size)
        start = min(self._place, stop)
        if self._missing(start, stop):
            # Archives are read from their end: its last bytes come with one request.
            first = min(start, max(0, self._size - _BLOCK)) if stop == self._size else start
            self.fetch([(first, min(self._size, max(stop, start + _BLOCK)))])
        data = os.pread(self._copy, stop - start, start)
        self._place = start + len(data)
        return data

    def fetch(self, spans: Iterable[Span]) -> None:
        """Fetch these spans, near ones together.

        Raises:
            NoRangesError: the server sends whole files only.
            ToolchainError: the server cannot be reached, or its file has another size.
        """
        wanted = [part for span in spans for part in self._missing(*span)]
        for start, stop in coalesced(wanted, GAP):
            self._request(start, stop)
            self._spans = list(coalesced([*self._spans, (start, stop)], 0))

    def _missing(self, start: int, stop: int) -> list[Span]:
        """The parts of a span that are not here."""
        parts = []
        for first, last in self._spans:
            if first < stop and start < last:
                parts.append((start, first))
                start = max(start, last)
        parts.append((start, stop))
        return [(first, last) for first, last in parts if first < last]

    def _request(self, start: int, stop: int) -> None:
        from httpx2 import HTTPError

        for attempt in range(1, _TRIES + 1):
            try:
                return self._receive(start, stop)
            except (HTTPError, EOFError) as error:
                if attempt == _TRIES:
                    what = f"a part of {Path(self._url).name} cannot be fetched: {error}"
                    raise ToolchainError(what) from None
        return None

    def _receive(self, start: int, stop: int) -> None:
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        with self._client.stream("GET", self._url, headers=headers) as response:
            self._refuse_other(response)
            place = start
            for block in response.iter_raw():
                if place + len(block) > stop:
                    raise EOFError(f"more than {stop - start} bytes came")
                os.pwrite(self._copy, block, place)
                place += len(block)
                self.fetched += len(block)
        if place != stop:
            raise EOFError(f"{place - start} of {stop - start} bytes came")

    def _refuse_other(self, response: Response) -> None:
        response.raise_for_status()
        if response.status_code != _PARTIAL_CONTENT:
            raise NoRangesError
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
        if total.isdigit() and int(total) != self._size:
            raise ToolchainError(
                f"{Path(self._url).name} has {total} bytes on the index, {self._size} in the lock",
                hint="this index serves another file under that name",
            )


def coalesced(spans: Iterable[Span], gap: int) -> Iterator[Span]:
    """The spans in order; those not more than `gap` bytes apart as one."""
    current: Span | None = None
    for start, stop in sorted(spans):
        if current is not None and start - current[1] <= gap:
            current = (current[0], max(current[1], stop))
            continue
        if current is not None:
            yield current
        current = (start, stop)
    if current is not None:
        yield current
