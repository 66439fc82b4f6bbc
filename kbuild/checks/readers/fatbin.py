"""CUDA fat binaries: containers of machine code and PTX, as nvcc puts them into `.nv_fatbin`.

A container is a header (`HEADER`) and entries, one after the other; an entry is a header (`ENTRY`)
that tells kind, capability and compression, and the code. NVIDIA documents only what points to it
(`fatbinary_section.h`); the rest was found by giving nvcc 13.2 every target and every
`--compress-mode`, nvcc 12.4 and 13.0 some, and reading the output beside `cuobjdump`'s listing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap

from kbuild.checks.readers.image import DeviceCodeError, Image
from kbuild.checks.readers.padding import skip_padding

MAGIC = 0xBA55ED50
HEADER = struct.Struct("<IHHQ")
"""Magic, format version, size of this header, bytes of entries."""
ENTRY = struct.Struct("<HHIQIIHHIIIQ")
"""Kind, format version, size of this header, bytes of code with padding; bytes of code
when compressed, else 0,
offset of the options; minor and major version of the code, capability (90), offset and size of the
name; flags."""

SCATTERED = ".lrodata"
"""The section of large constants, which CuTe DSL puts containers into."""
_SIGNATURE = struct.pack("<IHH", MAGIC, 1, HEADER.size)
_KINDS = {1: "ptx", 2: "machine", 8: "ir"}
_COMPRESSION = {0x2000: "lz4", 0x8000: "zstd"}
_UNKNOWN = "unknown"
_FEATURES = {0x100000: "a", 0x200000: "f"}

_ELF = b"\x7fELF"
_CUBIN = struct.Struct("<8xB9xH28xI")
"""From an ELF header: ABI version, machine, flags."""
_EM_CUDA = 190
_FIRST_SHIFTED_ABI = 8
"""From this ABI version on (CUDA 13), the flags' second byte is the capability, not the first."""


def images(data: mmap, start: int, stop: int) -> Iterator[Image]:
    """What the containers between two offsets hold.

    Raises:
        DeviceCodeError: something there is no container, or damaged.
    """
    at = skip_padding(data, start, stop)
    while at < stop:
        if at + HEADER.size > stop:
            raise DeviceCodeError(f"a CUDA fat binary is cut off at offset {at:#x}")
        magic, _, header, size = HEADER.unpack_from(data, at)
        if magic != MAGIC:
            raise DeviceCodeError(f"no CUDA fat binary begins at offset {at:#x}")
        first, end = at + header, at + header + size
        if header < HEADER.size or end > stop:
            raise DeviceCodeError(f"the CUDA fat binary at offset {at:#x} is damaged")
        yield from _entries(data, first, end, at)
        at = skip_padding(data, end, stop)


def scattered(data: mmap, start: int, stop: int) -> Iterator[Image]:
    """What containers hold that lie between other constants, as in the objects of CuTe DSL.

    Raises:
        DeviceCodeError: one is damaged.
    """
    at = data.find(_SIGNATURE, start, stop)
    while at >= 0:
        _, _, header, size = HEADER.unpack_from(data, at)
        end = at + header + size
        yield from images(data, at, min(end, stop))
        at = data.find(_SIGNATURE, max(end, at + 1), stop)


def _entries(data: mmap, at: int, end: int, container: int) -> Iterator[Image]:
    while at < end:
        if at + ENTRY.size > end:
            raise DeviceCodeError(f"the CUDA fat binary at offset {container:#x} is cut off")
        kind, _, header, size, packed, _, _, _, number, _, _, flags = ENTRY.unpack_from(data, at)
        code, following = at + header, at + header + size
        if header < ENTRY.size or following > end:
            raise DeviceCodeError(f"the CUDA fat binary at offset {container:#x} is damaged")
        compression = _named(_COMPRESSION, flags) or (_UNKNOWN if packed else "")
        if _KINDS.get(kind) == "machine" and not compression:
            _compare(data, code, number)
        yield Image(
            "cuda",
            f"{number // 10}.{number % 10}{_named(_FEATURES, flags)}",
            _KINDS.get(kind, f"kind {kind}"),
            header + size,
            container,
            compression,
        )
        at = following


def _named(names: dict[int, str], flags: int) -> str:
    return next((name for flag, name in names.items() if flags & flag), "")


def _compare(data: mmap, at: int, number: int) -> None:
    """A cubin says itself what it is for: the entry must say the same."""
    if data[at : at + 4] != _ELF:
        raise DeviceCodeError(f"the machine code at offset {at:#x} is no cubin")
    abi, machine, flags = _CUBIN.unpack_from(data, at)
    own = (flags >> 8 if abi >= _FIRST_SHIFTED_ABI else flags) & 0xFF
    if machine != _EM_CUDA or own != number:
        raise DeviceCodeError(f"the cubin at offset {at:#x} is not for {number}, as its entry says")
