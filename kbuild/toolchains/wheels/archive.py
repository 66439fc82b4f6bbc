"""An opened wheel: which members it has, and unpacking some of them with every byte checked.

A member's CRC-32 is checked by `zipfile`, its SHA-256 against the wheel's RECORD (PEP 376, 427),
and RECORD itself against the lock where the wheel is not there as a whole. How much comes out is
bounded (`kbuild.untrusted.Allowance`), and so is the list of members before it is read.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import stat
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import IO
from zipfile import BadZipFile, ZipFile, ZipInfo

from kbuild.errors import StorageError, ToolchainError
from kbuild.fileset import sha256
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.remote import RemoteFile
from kbuild.untrusted import Allowance, reading

Place = Callable[[str], str | None]
"""Member name -> POSIX path below the target folder, None to leave it out."""
_BLOCK = 1 << 20
_END, _END_64 = struct.Struct("<4s8xL6x"), struct.Struct("<4s36xQ8x")
"""The end of a zip, of which only the signature and the size of the list of members matter."""
_ELSEWHERE = 0xFFFFFFFF
"""In place of a length that only the 64-bit record has."""
_LOCATOR, _COMMENT = 20, 1 << 16
_LISTED = 128
"""Bytes that a member takes in the list of members, on the average, at the most."""


class Wheel:
    """One wheel, here as a whole or reachable by ranges."""

    def __init__(self, locked: LockedWheel, file: Path | RemoteFile) -> None:
        self.locked = locked
        self._remote = file if isinstance(file, RemoteFile) else None
        with reading(locked.filename, "a wheel"):
            packed = _refuse_long_list(file, locked.filename)
            try:
                self._archive = ZipFile(file)
            except BadZipFile as error:
                if isinstance(error.__context__, OSError):  # no room for what was fetched of it
                    raise error.__context__ from None
                raise
        self._allowed = Allowance(locked.filename, packed)
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
        found = [name for name in self.names if name.endswith(tail) and name.count("/") == 1]
        if not found:
            raise ToolchainError(f"{self.locked.filename} has no {file}")
        return found[0]

    def unpack(self, folder: Path, place: Place) -> None:
        """Write the members that `place` wants below `folder`.

        Raises:
            ToolchainError: a member is not what RECORD, or RECORD not what the lock says.
            DamagedFileError: a member cannot be unpacked, or all together are too large.
            StorageError: there is no room for them.
        """
        targets = {name: target for name in self.names if (target := place(name)) is not None}
        self._refuse_too_large(folder, targets)
        self._prefetch((*targets, self.record_name))
        digests = self._digests()
        for name, target in targets.items():
            if name not in digests:
                raise self._broken(name, "RECORD does not list it")
            self._write(self._archive.getinfo(name), _below(folder, target), digests[name])

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

    def _prefetch(self, names: Iterable[str]) -> None:
        if self._remote is not None:
            self._remote.fetch(self._spans[name] for name in names)

    def _digests(self) -> Mapping[str, str]:
        """See `recorded`."""
        text = self.read(self.record_name)
        if self.locked.record is not None and sha256(text) != self.locked.record:
            raise self._broken(self.record_name, "it is not the RECORD that the lock names")
        return recorded(text)

    def _write(self, info: ZipInfo, target: Path, digest: str) -> None:
        found, size = hashlib.sha256(), 0
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._reading(info.filename),
            self._archive.open(info) as source,
            target.open("wb") as file,
        ):
            while block := source.read(_BLOCK):
                size += len(block)
                if size > info.file_size:
                    break
                found.update(block)
                file.write(block)
        if size != info.file_size:
            raise self._allowed.refusal(info.filename, f"it has not the {info.file_size} bytes")
        if as_recorded(found) != digest:
            raise self._broken(info.filename, "its SHA-256 is not the one in RECORD")
        if (info.external_attr >> 16) & 0o111:
            target.chmod(0o755)

    def _broken(self, name: str, reason: str) -> ToolchainError:
        return ToolchainError(f"{self.locked.filename}: `{name}`: {reason}")


def recorded(record: bytes) -> dict[str, str]:
    """Member -> its SHA-256 as RECORD writes it."""
    rows = csv.reader(io.StringIO(record.decode("utf-8")))
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) > 1 and row[1]}


def as_recorded(found: hashlib._Hash) -> str:
    """A SHA-256 as RECORD writes it: urlsafe base64 without padding."""
    return base64.urlsafe_b64encode(found.digest()).rstrip(b"=").decode()


def _refuse_long_list(file: Path | RemoteFile, name: str) -> int:
    """Refuse a list of members that would fill the memory; returns the bytes of the wheel.

    The list lies at the end of a zip, and `zipfile` reads all of it.
    """
    opened: IO[bytes] | RemoteFile = file.open("rb") if isinstance(file, Path) else file
    try:
        size = opened.seek(0, io.SEEK_END)
        opened.seek(max(0, size - _COMMENT - _END.size - _LOCATOR - _END_64.size))
        tail = opened.read()
        opened.seek(0)
    finally:
        if isinstance(file, Path):
            opened.close()
    at = tail.rfind(b"PK\5\6")
    length = _END.unpack_from(tail, at)[1] if 0 <= at <= len(tail) - _END.size else 0
    before = at - _LOCATOR - _END_64.size
    if before >= 0 and tail.startswith(b"PK\6\6", before):
        longer = _END_64.unpack_from(tail, before)[1]
        length = longer if length == _ELSEWHERE else max(length, longer)
    allowed = Allowance(name, size)
    if length > allowed.MOST_MEMBERS * _LISTED:
        raise allowed.refusal("", f"its list of members has {length >> 20} MB")
    return size


def _spans(archive: ZipFile) -> dict[str, tuple[int, int]]:
    """Where each member lies: from its own header to the next member's."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
    pairs = zip(infos, ends, strict=True)
    return {info.filename: (info.header_offset, end) for info, end in pairs}


def _below(folder: Path, target: str) -> Path:
    path = PurePosixPath(target)
    if path.is_absolute() or ".." in path.parts:
        raise ToolchainError(f"a wheel wants to write to `{target}`")
    return folder / path
