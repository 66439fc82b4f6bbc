"""HIP's device code: clang's offload bundles in `.hip_fatbin`, one per compiled source.

A bundle is a magic string, the number of entries, and for every entry offset, size and target; the
code follows. With `--offload-compress` the whole of it is packed, see `hip_packed`. Source: "Clang
Offload Bundler" in clang's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap

from kbuild.checks.readers.hip_packed import COMPRESSED, HEAD, Packed, head_of, packed_at
from kbuild.checks.readers.image import DeviceCodeError, Image
from kbuild.checks.readers.padding import skip_padding

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
"""Offset from the bundle's begin, bytes of code, length of the target that follows."""
_MOST_ENTRIES = 512


@dataclass(frozen=True)
class _Entry:
    offset: int
    size: int
    target: str


def images(data: mmap, start: int, stop: int) -> Iterator[Image]:
    """What the bundles between two offsets hold, code for the host left out.

    Raises:
        CompressedError: a bundle is compressed in a way that this Python has no module for.
        DeviceCodeError: something there is no bundle, or damaged.
    """
    at = skip_padding(data, start, stop)
    while at < stop:
        if data[at : at + len(BUNDLE)] == BUNDLE:
            entries = _entries(data[at : min(at + HEAD, stop)], at)
            end = at + _extent(entries)
            if end > stop:
                raise DeviceCodeError(f"the offload bundle at offset {at:#x} is cut off")
            yield from _plain(entries, at)
        elif data[at : at + len(COMPRESSED)] == COMPRESSED:
            packed = packed_at(data, at, stop)
            yield from _unpacked(data, packed, at)
            end = packed.end
        else:
            raise DeviceCodeError(f"no offload bundle begins at offset {at:#x}")
        at = skip_padding(data, min(end, stop), stop)


def _extent(entries: list[_Entry]) -> int:
    """Bytes of a bundle; the page of an entry without code need not be there."""
    return max((entry.offset + entry.size for entry in entries if entry.size), default=len(BUNDLE))


def _plain(entries: list[_Entry], at: int) -> Iterator[Image]:
    for entry in entries:
        if _is_device(entry):
            yield _image(entry, entry.size, at, "")


def _unpacked(data: mmap, packed: Packed, at: int) -> Iterator[Image]:
    head = head_of(data[packed.begin : packed.end], packed.method, at)
    if not head.startswith(BUNDLE):
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} holds no offload bundle")
    entries = _entries(head, at)
    stored = packed.end - at
    whole = packed.unpacked or _extent(entries)
    for entry in entries:
        if _is_device(entry):
            yield _image(entry, stored * entry.size // whole, at, packed.method)


def _is_device(entry: _Entry) -> bool:
    return not entry.target.startswith("host")


def _image(entry: _Entry, size: int, at: int, compression: str) -> Image:
    """From `hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-`."""
    name, *features = entry.target.split(":")
    arch = name.partition("--")[2] or name.rpartition("-")[2]
    return Image("rocm", arch, "machine", size, at, compression, tuple(sorted(features)))


def _entries(head: bytes, at: int) -> list[_Entry]:
    try:
        return list(_read_entries(head))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        message = f"the offload bundle at offset {at:#x} is damaged: {error}"
        raise DeviceCodeError(message) from None


def _read_entries(head: bytes) -> Iterator[_Entry]:
    (count,) = _COUNT.unpack_from(head, len(BUNDLE))
    if not 0 < count <= _MOST_ENTRIES:
        raise ValueError(f"it claims {count} entries")
    at = len(BUNDLE) + _COUNT.size
    for _ in range(count):
        offset, size, length = _ENTRY.unpack_from(head, at)
        at += _ENTRY.size
        target = head[at : at + length].decode("ascii")
        if len(target) != length:
            raise ValueError("its table is cut off")
        yield _Entry(offset, size, target)
        at += length
