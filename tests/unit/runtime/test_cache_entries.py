"""Entries as bytes: what was cut off, changed, swapped, forged or blown up is refused."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.errors import DamagedFileError
from kbuild.runtime.cache_entries import (
    CacheEntry,
    export_entry,
    import_entry,
    install_entry,
    parse_entry,
    read_entry,
    seal,
    unseal,
)
from kbuild.runtime.file_state import hash_bytes
from kbuild.runtime.files import sha256

KEY = "ab" * 16
SECRET = b"s" * 16


def object_entry(content: bytes = b"\x7fELF" * 100, key: str = KEY) -> CacheEntry:
    rows = b"first\trelu.h\t00\t/kernel/relu.h"
    record = b"\n".join((b"kbuild-object 3", hash_bytes(content).encode(), rows))
    return CacheEntry(key, hash_bytes(rows), record, content, b"a warning\n", 2.5)


def image_entry(content: bytes = b"code") -> CacheEntry:
    record = json.dumps({"code": sha256(content), "image": None}).encode()
    return CacheEntry("cd" * 32, "image", record, content)


@pytest.mark.parametrize("entry", [object_entry(), image_entry(), object_entry(b"")])
def test_an_entry_goes_to_another_cache(tmp_path: Path, entry: CacheEntry) -> None:
    install_entry(tmp_path / "a", entry)
    data = export_entry(tmp_path / "a", entry.key, entry.name, SECRET)
    imported = import_entry(tmp_path / "b", entry.key, entry.name, data, SECRET)
    assert imported == replace(entry, seconds=0.0)
    assert read_entry(tmp_path / "b", entry.key, entry.name) == imported
    assert str(tmp_path).encode() not in data


def test_every_byte_counts() -> None:
    data = seal("a", b"content" * 50)
    for at in range(len(data)):
        changed = bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]])
        signature = range(16 + 32, 16 + 64)
        if at in signature:  # which is not looked at without a secret
            continue
        with pytest.raises(DamagedFileError):
            unseal("a", changed)
    for length in range(len(data)):
        with pytest.raises(DamagedFileError):
            unseal("a", data[:length])


def test_an_entry_of_another_name_is_refused() -> None:
    with pytest.raises(DamagedFileError, match="digest"):
        unseal("b", seal("a", b"content"))


def test_a_secret_is_needed_to_be_believed() -> None:
    assert unseal("a", seal("a", b"content", SECRET), SECRET) == b"content"
    assert unseal("a", seal("a", b"content", SECRET)) == b"content"
    for forged in (seal("a", b"content"), seal("a", b"content", b"t" * 16)):
        with pytest.raises(DamagedFileError, match="not signed"):
            unseal("a", forged, SECRET)


def test_what_is_unpacked_is_limited() -> None:
    bomb = seal("a", bytes(50 << 20))
    assert len(bomb) < 1 << 20
    with pytest.raises(DamagedFileError, match="more than 1000 bytes"):
        unseal("a", bomb, limit=1000)
    assert zlib.decompress(bomb[16 + 64 :]) == bytes(50 << 20)


@pytest.mark.parametrize(
    "entry",
    [
        replace(object_entry(), content=b"another object"),
        replace(object_entry(), name="00" * 16),
        replace(object_entry(), key="../../" + "ab" * 13),
        replace(object_entry(), name="../image"),
        replace(object_entry(), record=b""),
        replace(image_entry(), content=b"other code"),
        replace(image_entry(), record=b"[]"),
        replace(image_entry(), record=b"\xff"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path, entry: CacheEntry) -> None:
    with pytest.raises(DamagedFileError):
        install_entry(tmp_path / "cache", entry)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "data",
    [b"", b"{}\n", b"[]\n", object_entry().to_bytes()[:-1], object_entry(key="cd" * 16).to_bytes()],
)
def test_bytes_of_no_entry_or_another_one(data: bytes) -> None:
    entry = object_entry()
    with pytest.raises(DamagedFileError):
        parse_entry(data, entry.path)
