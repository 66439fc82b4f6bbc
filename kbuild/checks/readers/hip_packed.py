"""Compressed offload bundles, as clang's `--offload-compress` writes them.

A header tells method and sizes; unpacking the first bytes is enough to see which archs are there.
Source: "Clang Offload Bundler" in clang's documentation, versions 1 to 3 of the compressed form.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from kbuild.checks.readers.image import CompressedError, DeviceCodeError

COMPRESSED = b"CCOB"
HEAD = 1 << 16
"""Enough unpacked bytes for the table of every bundle: one entry takes about 70."""
_PREFIX = struct.Struct("<4sHH")
"""Magic, version, method."""
_SIZES = {1: struct.Struct("<8xIQ"), 2: struct.Struct("<8xIIQ"), 3: struct.Struct("<8xQQQ")}
"""After the prefix: bytes of the whole (not in version 1), bytes when unpacked, hash."""
_UNSIZED = 1
_METHODS = {0: "zlib", 1: "zstd"}
_ZSTD = ("compression.zstd", "backports.zstd")
"""Python's own module from 3.14 on, and the package that is the same for older ones."""
_ALIGNMENT = 8


@dataclass(frozen=True)
class Packed:
    """A compressed bundle's place in the file."""

    method: str
    """`zlib` or `zstd`."""
    begin: int
    """Offset of the compressed bytes, after the header."""
    end: int
    unpacked: int
    """Bytes when unpacked."""


def packed_at(data: mmap, at: int, stop: int) -> Packed:
    """The compressed bundle that begins at an offset.

    Raises:
        DeviceCodeError: its form is not known, or it is cut off.
    """
    if at + max(sizes.size for sizes in _SIZES.values()) > stop:
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} is cut off")
    _, version, method = _PREFIX.unpack_from(data, at)
    if version not in _SIZES or method not in _METHODS:
        form = f"is of an unknown form: version {version}, method {method}"
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} {form}")
    *length, unpacked, _ = _SIZES[version].unpack_from(data, at)
    begin = at + _SIZES[version].size
    end = _next(data, at, stop) if version == _UNSIZED else at + length[0]
    if not begin < end <= stop or not unpacked:
        raise DeviceCodeError(f"the compressed bundle at offset {at:#x} is cut off")
    return Packed(_METHODS[method], begin, end, unpacked)


def _next(data: mmap, at: int, stop: int) -> int:
    """Where a bundle that does not tell its length ends at the latest."""
    following = data.find(COMPRESSED, at + 1, stop)
    while following >= 0 and following % _ALIGNMENT:
        following = data.find(COMPRESSED, following + 1, stop)
    return stop if following < 0 else following


def head_of(packed: bytes, method: str, at: int) -> bytes:
    """The first unpacked bytes.

    Raises:
        CompressedError: this Python has no module for the method.
        DeviceCodeError: the bytes are damaged.
    """
    try:
        if method == "zlib":
            return zlib.decompressobj().decompress(packed, HEAD)
        return _unpacked(_zstd(), packed)
    except (zlib.error, ValueError) as error:
        if isinstance(error, CompressedError):
            raise
        message = f"the compressed bundle at offset {at:#x} does not unpack: {error}"
        raise DeviceCodeError(message) from None


def _unpacked(module: Any, packed: bytes) -> bytes:
    try:
        head: bytes = module.ZstdDecompressor().decompress(packed, HEAD)
    except module.ZstdError as error:
        raise ValueError(str(error)) from None
    return head


def _zstd() -> Any:
    for name in _ZSTD:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise CompressedError("its AMD code is compressed with zstd, which this Python cannot read")
