"""Entries of the object cache as bytes, for another cache: exported, verified and imported.

    <cache>/objects/<kk>/<key>/<name>.d     what the entry was made from, with digests
                              <name>.o     the object, or the code of an image
                              <name>.err   the compiler's messages

What leaves this machine is sealed: compressed, with a digest over its name and content, and with a
signature where the sender and the reader share a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from kbuild.errors import DamagedFileError
from kbuild.runtime.file_state import hash_bytes
from kbuild.runtime.files import replace_atomically, sha256
from kbuild.runtime.untrusted import reading

MAX_ENTRY_BYTES = 1 << 30
"""Of an entry when it is unpacked: the largest objects of device code have some 100 MB."""
IMAGE_ENTRY = "image"
"""Name of the only entry of an image's key."""
_MAGIC = b"kbuild-sealed 1\n"
_DIGEST = 32
_COMPRESSION = 3
"""Of zlib: an object shrinks to a third, at some 60 MB/s."""
_KEY = re.compile(r"[0-9a-f]{32,64}")
_NAME = re.compile(rf"[0-9a-f]{{32,64}}|{IMAGE_ENTRY}")
_KIND = "an entry of another cache"


def seal(name: str, content: bytes, secret: bytes = b"") -> bytes:
    """The content, compressed, bound to its name, and signed if there is a secret."""
    payload = zlib.compress(content, _COMPRESSION)
    digest, signature = _seals(name, payload, secret)
    return b"".join((_MAGIC, digest, signature, payload))


def unseal(name: str, data: bytes, secret: bytes = b"", limit: int = MAX_ENTRY_BYTES) -> bytes:
    """The content that was sealed under this name.

    Args:
        name: what the bytes were asked for by.
        data: as `seal` has given them.
        secret: if there is one, only what was signed with it is accepted.
        limit: bytes of the content, at most; nothing beyond them is unpacked.

    Raises:
        DamagedFileError: the bytes were cut off, changed, made for another name, or not signed
            with the secret, or they hold more than `limit`.
    """
    start = len(_MAGIC)
    header, payload = data[: start + 2 * _DIGEST], data[start + 2 * _DIGEST :]
    digest, signature = header[start : start + _DIGEST], header[start + _DIGEST :]
    expected = _seals(name, payload, secret)
    if not header.startswith(_MAGIC) or not hmac.compare_digest(digest, expected[0]):
        raise DamagedFileError(f"`{name}` is damaged: its digest does not fit its content")
    if secret and not hmac.compare_digest(signature, expected[1]):
        raise DamagedFileError(f"`{name}` is not signed with the secret")
    with reading(name, _KIND):
        stream = zlib.decompressobj()
        content = stream.decompress(payload, limit)
        if not stream.eof:
            raise ValueError(f"it holds more than {limit} bytes, or was cut off")
    return content


def _seals(name: str, payload: bytes, secret: bytes) -> tuple[bytes, bytes]:
    named = name.encode() + b"\0" + payload
    signature = hmac.digest(secret, named, "sha256") if secret else bytes(_DIGEST)
    return hashlib.sha256(named).digest(), signature


@dataclass(frozen=True)
class CacheEntry:
    """One object or image with its record."""

    key: str
    name: str
    """Digest of what the object was made from, or `image`."""
    record: bytes
    content: bytes
    messages: bytes = b""
    seconds: float = 0.0
    """What it took to make, where that is known."""

    @property
    def path(self) -> str:
        """Its name among the entries of all keys."""
        return f"{self.key}/{self.name}"

    def validate(self) -> None:
        """Refuse an entry whose parts do not belong together.

        Raises:
            DamagedFileError: the record has another object's digest or another name, or the key
                or the name is none.
        """
        if not _KEY.fullmatch(self.key) or not _NAME.fullmatch(self.name):
            raise DamagedFileError(f"`{self.path[:100]!r}` is not the name of a cached object")
        with reading(self.path, _KIND):
            if self.name == IMAGE_ENTRY:
                is_whole = json.loads(self.record)["code"] == sha256(self.content)
            else:
                lines = self.record.split(b"\n", 2)
                rows = lines[2] if len(lines) > 2 else b""  # noqa: PLR2004 - format, digest, rows
                is_whole = lines[1].decode() == hash_bytes(self.content)
                is_whole = is_whole and hash_bytes(rows) == self.name
            if not is_whole:
                raise ValueError("its record belongs to another object")

    def to_bytes(self) -> bytes:
        """Everything; `parse_entry` reads it."""
        parts = (self.record, self.content, self.messages)
        sizes = [len(part) for part in parts]
        facts = {"key": self.key, "name": self.name, "seconds": round(self.seconds, 2)}
        header = {**facts, "sizes": sizes}
        return b"".join((json.dumps(header).encode(), b"\n", *parts))

    def without_record(self) -> CacheEntry:
        """The entry for one who has the record already."""
        return replace(self, record=b"")


def parse_entry(data: bytes, path: str) -> CacheEntry:
    """The entry of that path from its bytes; it is still to be validated.

    Raises:
        DamagedFileError: the bytes are none, or are those of another entry.
    """
    with reading(path, _KIND):
        header, _, rest = data.partition(b"\n")
        facts = json.loads(header)
        record, content, messages = (int(size) for size in facts["sizes"])
        if min(record, content, messages) < 0 or record + content + messages != len(rest):
            raise ValueError("its sizes do not fit")
        ends = record, record + content
        parts = rest[: ends[0]], rest[ends[0] : ends[1]], rest[ends[1] :]
        entry = CacheEntry(
            str(facts["key"]), str(facts["name"]), *parts, seconds=float(facts["seconds"])
        )
        if entry.path != path:
            raise ValueError("it is another entry")
        return entry


def read_entry(cache: Path, key: str, name: str) -> CacheEntry:
    """An entry of the cache folder `cache`.

    Raises:
        OSError: it is not there.
        DamagedFileError: see `CacheEntry.validate`.
    """
    stem = _folder(cache, key) / name
    record, content, messages = (
        stem.with_name(f"{name}{suffix}").read_bytes() for suffix in (".d", ".o", ".err")
    )
    entry = CacheEntry(key, name, record, content, messages)
    entry.validate()
    return entry


def install_entry(cache: Path, entry: CacheEntry) -> None:
    """Put the entry into the cache folder `cache`; readers see all of it or nothing.

    Raises:
        DamagedFileError: see `CacheEntry.validate`; nothing was written.
        OSError: it cannot be written.
    """
    entry.validate()
    folder = _folder(cache, entry.key)
    folder.mkdir(parents=True, exist_ok=True)
    parts = ((".o", entry.content), (".err", entry.messages), (".d", entry.record))
    for suffix, data in parts:  # the record comes last: with it, the entry is complete
        replace_atomically(folder / f"{entry.name}{suffix}", data)


def export_entry(cache: Path, key: str, name: str, secret: bytes = b"") -> bytes:
    """An entry of a cache folder as sealed bytes; see `read_entry` for what it raises."""
    entry = read_entry(cache, key, name)
    return seal(entry.path, entry.to_bytes(), secret)


def import_entry(cache: Path, key: str, name: str, data: bytes, secret: bytes = b"") -> CacheEntry:
    """Verify what `export_entry` gave elsewhere, and put it into the cache folder `cache`.

    Raises:
        DamagedFileError: the bytes are not those of this entry; nothing was written.
        OSError: it cannot be written.
    """
    path = f"{key}/{name}"
    entry = parse_entry(unseal(path, data, secret), path)
    install_entry(cache, entry)
    return entry


def _folder(cache: Path, key: str) -> Path:
    return cache / "objects" / key[:2] / key[2:]
