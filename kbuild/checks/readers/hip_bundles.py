"""HIP device code: clang's offload bundles in `.hip_fatbin`, plain and compressed."""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from kbuild.checks.readers.device_image import (
    CompressedError,
    DeviceCodeError,
    DeviceImage,
    skip_padding,
)

COMPRESSED = b"CCOB"
HEAD_SIZE = 1 << 16
"""Enough unpacked bytes for the table of every bundle: one entry takes about 70."""
_PREFIX = struct.Struct("<4sHH")
_SIZE_LAYOUTS = {1: struct.Struct("<8xIQ"), 2: struct.Struct("<8xIIQ"), 3: struct.Struct("<8xQQQ")}
"""Fields after the prefix: bytes of the whole (not in version 1), bytes when unpacked, hash."""
_UNSIZED = 1
_METHODS = {0: "zlib", 1: "zstd"}
_ZSTD = ("compression.zstd", "backports.zstd")
"""Python's own module from 3.14 on, and the package that is the same for older ones."""
_ALIGNMENT = 8


@dataclass(frozen=True)
class CompressedBundle:
    """A compressed bundle's place in the file."""

    method: str
    """`zlib` or `zstd`."""
    begin: int
    """Offset of the compressed bytes, after the header."""
    end: int
    unpacked: int
    """Bytes when unpacked."""


def read_compressed_header(data: mmap, at: int, stop: int) -> CompressedBundle:
    """The compressed bundle that begins at an offset.

    Raises:
        DeviceCodeError: its form is not known, or it is cut off.
    """
    if at + max(sizes.size for sizes in _SIZE_LAYOUTS.values()) > stop:
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} is cut off")
    _, version, method = _PREFIX.unpack_from(data, at)
    if version not in _SIZE_LAYOUTS or method not in _METHODS:
        form = f"is of an unknown form: version {version}, method {method}"
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} {form}")
    *length, unpacked, _ = _SIZE_LAYOUTS[version].unpack_from(data, at)
    begin = at + _SIZE_LAYOUTS[version].size
    end = _next_bundle(data, at, stop) if version == _UNSIZED else at + length[0]
    if not begin < end <= stop or not unpacked:
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} is cut off")
    return CompressedBundle(_METHODS[method], begin, end, unpacked)


def _next_bundle(data: mmap, at: int, stop: int) -> int:
    """The latest end of a bundle that does not tell its length."""
    following = data.find(COMPRESSED, at + 1, stop)
    # Bundles are aligned: the same bytes at another place are part of the packed code.
    while following >= 0 and following % _ALIGNMENT:
        following = data.find(COMPRESSED, following + 1, stop)
    return stop if following < 0 else following


def decompress_head(packed: bytes, method: str, at: int) -> bytes:
    """The first unpacked bytes.

    Raises:
        CompressedError: this Python has no module for the method.
        DeviceCodeError: the bytes are damaged.
    """
    try:
        if method == "zlib":
            return zlib.decompressobj().decompress(packed, HEAD_SIZE)
        return _decompress_zstd(_zstd_module(), packed)
    except (zlib.error, ValueError) as error:
        if isinstance(error, CompressedError):
            raise
        message = f"the compressed bundle at offset {at:#x} does not unpack: {error}"
        raise DeviceCodeError(message) from None


def _decompress_zstd(module: Any, packed: bytes) -> bytes:
    try:
        head: bytes = module.ZstdDecompressor().decompress(packed, HEAD_SIZE)
    except module.ZstdError as error:
        raise ValueError(str(error)) from None
    return head


def _zstd_module() -> Any:
    for name in _ZSTD:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise CompressedError("its AMD code is compressed with zstd, which this Python cannot read")


BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
"""Offset from the bundle's begin, bytes of code, length of the target that follows."""
_MOST_ENTRIES = 512


@dataclass(frozen=True)
class _BundleEntry:
    offset: int
    size: int
    target: str


def read_offload_bundles(data: mmap, start: int, stop: int) -> Iterator[DeviceImage]:
    """The images of the bundles between two offsets, code for the host left out.

    Raises:
        CompressedError: a bundle is compressed in a way that this Python has no module for.
        DeviceCodeError: something there is not a bundle, or damaged.
    """
    at = skip_padding(data, start, stop)
    while at < stop:
        if data[at : at + len(BUNDLE)] == BUNDLE:
            entries = _entries(data[at : min(at + HEAD_SIZE, stop)], at)
            end = at + _bundle_size(entries)
            if end > stop:
                raise DeviceCodeError(f"the offload bundle at offset {at:#x} is cut off")
            for entry in entries:
                if not entry.target.startswith("host"):
                    yield _image(entry, entry.size, at, "")
        elif data[at : at + len(COMPRESSED)] == COMPRESSED:
            packed = read_compressed_header(data, at, stop)
            yield from _compressed_images(data, packed, at)
            end = packed.end
        else:
            raise DeviceCodeError(f"no offload bundle begins at offset {at:#x}")
        at = skip_padding(data, min(end, stop), stop)


def _bundle_size(entries: list[_BundleEntry]) -> int:
    """Bytes of a bundle; the page of an entry without code need not be there."""
    return max((entry.offset + entry.size for entry in entries if entry.size), default=len(BUNDLE))


def _compressed_images(data: mmap, packed: CompressedBundle, at: int) -> Iterator[DeviceImage]:
    head = decompress_head(data[packed.begin : packed.end], packed.method, at)
    if not head.startswith(BUNDLE):
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} holds no offload bundle")
    entries = _entries(head, at)
    stored = packed.end - at
    unpacked = packed.unpacked or _bundle_size(entries)
    for entry in entries:
        if not entry.target.startswith("host"):
            # A bundle is packed as a whole: each image gets its share of the packed bytes.
            yield _image(entry, stored * entry.size // unpacked, at, packed.method)


def _image(entry: _BundleEntry, size: int, at: int, compression: str) -> DeviceImage:
    """The image of `hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-`."""
    name, *features = entry.target.split(":")
    arch = name.partition("--")[2] or name.rpartition("-")[2]
    return DeviceImage("rocm", arch, "machine", size, at, compression, tuple(sorted(features)))


def _entries(head: bytes, at: int) -> list[_BundleEntry]:
    try:
        return list(_read_entries(head))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        message = f"the offload bundle at offset {at:#x} is damaged: {error}"
        raise DeviceCodeError(message) from None


def _read_entries(head: bytes) -> Iterator[_BundleEntry]:
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
        yield _BundleEntry(offset, size, target)
        at += length
