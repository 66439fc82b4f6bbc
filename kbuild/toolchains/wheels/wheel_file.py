"""Wheels as archives, local or read by HTTP ranges; every unpacked member is checked.

Every member is checked by its CRC-32 and by its SHA-256 in RECORD (PEP 376, 427), and RECORD by
the lock where the wheel is not there as a whole. `kbuild.system.untrusted.UnpackLimit` bounds how
much comes out.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING
from zipfile import BadZipFile, ZipFile, ZipInfo

from kbuild.system.errors import StorageError, ToolchainError
from kbuild.system.files import sha256
from kbuild.system.progress import count_download
from kbuild.system.untrusted import UnpackLimit, reading
from kbuild.toolchains.wheels.lock import LockedWheel

if TYPE_CHECKING:
    from httpx2 import Client, Response


Span = tuple[int, int]
"""First byte, and the byte after the last."""

MAX_GAP = 256 * 1024
"""Bytes that are fetched needlessly rather than by a request of their own."""
_RANGE_BLOCK = 64 * 1024
_RANGE_TRIES = 3
_PARTIAL_CONTENT = 206


class NoRangesError(ToolchainError):
    """The server sends whole files only."""

    def __init__(self, message: str = "the index sends whole files only") -> None:
        super().__init__(message)


class HttpRangeFile(io.RawIOBase):
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
            first = min(start, max(0, self._size - _RANGE_BLOCK)) if stop == self._size else start
            self.fetch([(first, min(self._size, max(stop, start + _RANGE_BLOCK)))])
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
        for start, stop in merge_spans(wanted, MAX_GAP):
            self._request(start, stop)
            self._spans = list(merge_spans([*self._spans, (start, stop)], 0))

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

        for attempt in range(1, _RANGE_TRIES + 1):
            try:
                return self._receive(start, stop)
            except (HTTPError, EOFError) as error:
                if attempt == _RANGE_TRIES:
                    what = f"a part of {Path(self._url).name} cannot be fetched: {error}"
                    raise ToolchainError(what) from None
        return None

    def _receive(self, start: int, stop: int) -> None:
        # Ranges count bytes of the file, and not of an answer that is compressed on the way.
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
                count_download(len(block))
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


def merge_spans(spans: Iterable[Span], gap: int) -> Iterator[Span]:
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


MemberDestination = Callable[[str], str | None]
"""Member name -> POSIX path below the target folder, None to leave it out."""
_BLOCK = 1 << 20
_END, _END_64 = struct.Struct("<4s8xL6x"), struct.Struct("<4s36xQ8x")
"""The end of a zip, of which only the signature and the size of the list of members matter."""
_IN_64_BIT_RECORD = 0xFFFFFFFF
"""Stands for a length that only the 64-bit record has."""
_LOCATOR, _COMMENT = 20, 1 << 16
_MEAN_ENTRY_SIZE = 128
"""Bytes that a member takes in the list of members, on the average, at the most."""


class Wheel:
    """One wheel, here as a whole or reachable by ranges."""

    def __init__(self, locked: LockedWheel, file: Path | HttpRangeFile) -> None:
        self.locked = locked
        self._remote = file if isinstance(file, HttpRangeFile) else None
        with reading(locked.filename, "a wheel"):
            # Refuse a list of members that would fill the memory; returns the bytes of the wheel.
            opened: IO[bytes] | HttpRangeFile = file.open("rb") if isinstance(file, Path) else file
            try:
                size = opened.seek(0, io.SEEK_END)
                opened.seek(max(0, size - _COMMENT - _END.size - _LOCATOR - _END_64.size))
                tail = opened.read()
                opened.seek(0)
            finally:
                if isinstance(file, Path):
                    opened.close()
            # A comment may follow the record; as in `zipfile`, the last signature counts.
            at = tail.rfind(b"PK\5\6")
            length = _END.unpack_from(tail, at)[1] if 0 <= at <= len(tail) - _END.size else 0
            before = at - _LOCATOR - _END_64.size
            if before >= 0 and tail.startswith(b"PK\6\6", before):
                longer = _END_64.unpack_from(tail, before)[1]
                # The larger one counts: a hostile file may state two lengths.
                length = longer if length == _IN_64_BIT_RECORD else max(length, longer)
            allowed = UnpackLimit(locked.filename, size)
            if length > allowed.MOST_MEMBERS * _MEAN_ENTRY_SIZE:
                raise allowed.refusal("", f"its list of members has {length >> 20} MB")
            packed = size
            try:
                self._archive = ZipFile(file)
            except BadZipFile as error:
                if isinstance(error.__context__, OSError):  # no room for what was fetched of it
                    raise error.__context__ from None
                raise
        self._allowed = UnpackLimit(locked.filename, packed)
        try:
            with reading(locked.filename, "a wheel"):
                self._refuse_odd()
                self._spans = _spans(self._archive)
        except BaseException:
            self._archive.close()
            raise

    def _refuse_odd(self) -> None:
        """Refuse members that no wheel has, before anything is unpacked."""
        seen: set[str] = set()
        for info in self._archive.infolist():
            self._allowed.enter(info.filename)
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.filename in seen:
                raise self._allowed.refusal(info.filename, "it is there twice")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise self._allowed.refusal(info.filename, "it is neither a file nor a folder")
            seen.add(info.filename)

    def close(self) -> None:
        """Let go of the file."""
        self._archive.close()

    @property
    def names(self) -> tuple[str, ...]:
        """All members but folders, in archive order."""
        return tuple(info.filename for info in self._archive.infolist() if not info.is_dir())

    def read(self, name: str) -> bytes:
        """One small member, checked by its CRC-32 alone.

        Raises:
            DamagedFileError: it is not there, damaged, or not small.
        """
        most = self._allowed.MOST_TEXT
        with self._reading(name):
            if self._archive.getinfo(name).file_size > most:
                raise self._allowed.refusal(name, f"it has more than {most >> 20} MB")
            return self._archive.read(name)

    def _reading(self, member: str) -> AbstractContextManager[None]:
        return reading(f"{self.locked.filename}: {member}", "a member of a wheel")

    @property
    def record_name(self) -> str:
        """Path of RECORD."""
        return self.metadata_name("RECORD")

    def metadata_name(self, file: str) -> str:
        """Path of a file in the `.dist-info` folder."""
        tail = f".dist-info/{file}"
        # At the top alone: a package may bring the `.dist-info` of others that it contains.
        paths = [name for name in self.names if name.endswith(tail) and name.count("/") == 1]
        if not paths:
            raise ToolchainError(f"{self.locked.filename} has no {file}")
        return paths[0]

    def unpack(self, folder: Path, place: MemberDestination) -> None:
        """Write the members that `place` wants below `folder`.

        Raises:
            ToolchainError: a member is not what RECORD, or RECORD not what the lock says.
            DamagedFileError: a member cannot be unpacked, or all together are too large.
            StorageError: there is not enough space for them.
        """
        targets = {name: target for name in self.names if (target := place(name)) is not None}
        # Before anything is fetched or written.
        self._refuse_too_large(folder, targets)
        names = (*targets, self.record_name)
        if self._remote is not None:
            self._remote.fetch(self._spans[name] for name in names)
        digests = self._digests()
        for name, target in targets.items():
            if name not in digests:
                raise self._broken(name, "RECORD does not list it")
            path = PurePosixPath(target)
            if path.is_absolute() or ".." in path.parts:
                raise ToolchainError(f"a wheel wants to write to `{target}`")
            self._write(self._archive.getinfo(name), (folder / path), digests[name])

    def _refuse_too_large(self, folder: Path, targets: Mapping[str, str]) -> None:
        """Refuse by what the members say of their sizes, before anything is written."""
        if len({*targets.values()}) < len(targets):
            twice = max(targets.values(), key=[*targets.values()].count)
            raise self._allowed.refusal(twice, "two members are the same file")
        total = 0
        for name in targets:
            self._allowed.add(name, size := self._archive.getinfo(name).file_size)
            total += size
        free = shutil.disk_usage(folder).free
        if total > free:
            raise StorageError(
                f"{self.locked.filename} unpacks to {total >> 20} MB, and {free >> 20} MB are free "
                f"in `{folder}`",
                hint="make room, or set KBUILD_CACHE_DIR to a folder on a larger disk",
            )

    def _digests(self) -> Mapping[str, str]:
        """Read RECORD, see `parse_record`; it must be the one that the lock names."""
        text = self.read(self.record_name)
        if self.locked.record is not None and sha256(text) != self.locked.record:
            raise self._broken(self.record_name, "it is not the RECORD that the lock names")
        return parse_record(text)

    def _write(self, info: ZipInfo, target: Path, digest: str) -> None:
        content_hash, size = hashlib.sha256(), 0
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._reading(info.filename),
            self._archive.open(info) as source,
            target.open("wb") as file,
        ):
            while block := source.read(_BLOCK):
                size += len(block)
                # Stop at the stated size: a compressed member may go on without end.
                if size > info.file_size:
                    break
                content_hash.update(block)
                file.write(block)
        if size != info.file_size:
            raise self._allowed.refusal(
                info.filename, f"it does not have the {info.file_size} bytes"
            )
        if record_digest(content_hash) != digest:
            raise self._broken(info.filename, "its SHA-256 is not the one in RECORD")
        if (info.external_attr >> 16) & 0o111:
            target.chmod(0o755)

    def _broken(self, name: str, reason: str) -> ToolchainError:
        return ToolchainError(f"{self.locked.filename}: `{name}`: {reason}")


def parse_record(record: bytes) -> dict[str, str]:
    """Member -> its SHA-256 as RECORD writes it."""
    rows = csv.reader(io.StringIO(record.decode("utf-8")))
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) > 1 and row[1]}


def record_digest(content_hash: hashlib._Hash) -> str:
    """A SHA-256 as RECORD writes it: urlsafe base64 without padding."""
    return base64.urlsafe_b64encode(content_hash.digest()).rstrip(b"=").decode()


def _spans(archive: ZipFile) -> dict[str, tuple[int, int]]:
    """The span of each member: from its own header to the next member's."""
    # The length of a member's own header is not in the list of members.
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
    pairs = zip(infos, ends, strict=True)
    return {info.filename: (info.header_offset, end) for info, end in pairs}
