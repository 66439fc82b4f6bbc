"""An opened wheel: which members it has, and unpacking some of them with every byte checked.

A member's CRC-32 is checked by `zipfile`, its SHA-256 against the wheel's RECORD (PEP 376, 427),
and RECORD itself against the lock where the wheel is not there as a whole.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo
from zlib import error as ZlibError  # noqa: N812 - an exception class with a small letter

from kbuild.errors import ToolchainError
from kbuild.fileset import sha256
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.remote import RemoteFile

Place = Callable[[str], str | None]
"""Member name -> POSIX path below the target folder, None to leave it out."""
_BLOCK = 1 << 20


class Wheel:
    """One wheel, here as a whole or reachable by ranges."""

    def __init__(self, locked: LockedWheel, file: Path | RemoteFile) -> None:
        self.locked = locked
        self._remote = file if isinstance(file, RemoteFile) else None
        try:
            self._archive = ZipFile(file)
        except BadZipFile as error:
            raise ToolchainError(f"{locked.filename}: {error}") from None
        self._spans = _spans(self._archive)

    def close(self) -> None:
        """Let go of the file."""
        self._archive.close()

    @property
    def names(self) -> tuple[str, ...]:
        """All members but folders, in archive order."""
        return tuple(info.filename for info in self._archive.infolist() if not info.is_dir())

    def read(self, name: str) -> bytes:
        """One small member, checked by its CRC-32 alone."""
        try:
            return self._archive.read(name)
        except (BadZipFile, ZlibError, KeyError) as error:
            raise self._broken(name, str(error)) from None

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
        """
        targets = {name: target for name in self.names if (target := place(name)) is not None}
        self._prefetch((*targets, self.record_name))
        digests = self._digests()
        for name, target in targets.items():
            if name not in digests:
                raise self._broken(name, "RECORD does not list it")
            self._write(self._archive.getinfo(name), _below(folder, target), digests[name])

    def _prefetch(self, names: Iterable[str]) -> None:
        if self._remote is not None:
            self._remote.fetch(self._spans[name] for name in names)

    def _digests(self) -> Mapping[str, str]:
        """Member -> urlsafe base64 SHA-256 without padding, as RECORD writes it."""
        text = self.read(self.record_name)
        if self.locked.record is not None and sha256(text) != self.locked.record:
            raise self._broken(self.record_name, "it is not the RECORD that the lock names")
        rows = csv.reader(io.StringIO(text.decode("utf-8")))
        return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) > 1 and row[1]}

    def _write(self, info: ZipInfo, target: Path, digest: str) -> None:
        found = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._archive.open(info) as source, target.open("wb") as file:
                while block := source.read(_BLOCK):
                    found.update(block)
                    file.write(block)
        except (BadZipFile, ZlibError, EOFError) as error:
            raise self._broken(info.filename, str(error)) from None
        if base64.urlsafe_b64encode(found.digest()).rstrip(b"=").decode() != digest:
            raise self._broken(info.filename, "its SHA-256 is not the one in RECORD")
        if (info.external_attr >> 16) & 0o111:
            target.chmod(0o755)

    def _broken(self, name: str, reason: str) -> ToolchainError:
        return ToolchainError(f"{self.locked.filename}: `{name}`: {reason}")


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
