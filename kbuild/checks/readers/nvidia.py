"""NVIDIA device code: CUDA fat binaries."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap

from kbuild.checks.readers.device_image import DeviceCodeError, DeviceImage, skip_padding

FATBIN_MAGIC = 0xBA55ED50
FATBIN_HEADER = struct.Struct("<IHHQ")
"""Magic, format version, size of this header, bytes of entries."""
FATBIN_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
"""Kind, format version, size of this header, bytes of code with padding; bytes of code
when compressed, else 0,
offset of the options; minor and major version of the code, capability (90), offset and size of the
name; flags."""

LARGE_CONSTANTS_SECTION = ".lrodata"
"""The section of large constants, which CuTe DSL puts containers into."""
_SIGNATURE = struct.pack("<IHH", FATBIN_MAGIC, 1, FATBIN_HEADER.size)
_KINDS = {1: "ptx", 2: "machine", 8: "ir"}
_COMPRESSION = {0x2000: "lz4", 0x8000: "zstd"}
_UNKNOWN = "unknown"
_FEATURES = {0x100000: "a", 0x200000: "f"}

_ELF_MAGIC = b"\x7fELF"
_CUBIN_HEADER = struct.Struct("<8xB9xH28xI")
"""Fields of an ELF header: ABI version, machine, flags."""
_EM_CUDA = 190
_FIRST_SHIFTED_ABI = 8
"""First ABI version (CUDA 13) with the capability in the flags' second byte, not the first."""


def read_fat_binaries(data: mmap, start: int, stop: int) -> Iterator[DeviceImage]:
    """The images of the containers between two offsets.

    Raises:
        DeviceCodeError: something there is not a container, or damaged.
    """
    at = skip_padding(data, start, stop)
    while at < stop:
        if at + FATBIN_HEADER.size > stop:
            raise DeviceCodeError(f"a CUDA fat binary is cut off at offset {at:#x}")
        magic, _, header, size = FATBIN_HEADER.unpack_from(data, at)
        if magic != FATBIN_MAGIC:
            raise DeviceCodeError(f"no CUDA fat binary begins at offset {at:#x}")
        first, end = at + header, at + header + size
        if header < FATBIN_HEADER.size or end > stop:
            raise DeviceCodeError(f"the CUDA fat binary at offset {at:#x} is damaged")
        yield from _read_fatbin_entries(data, first, end, at)
        at = skip_padding(data, end, stop)


def find_fat_binaries(data: mmap, start: int, stop: int) -> Iterator[DeviceImage]:
    """The images of containers that lie between other constants, as in the objects of CuTe DSL.

    Raises:
        DeviceCodeError: one is damaged.
    """
    at = data.find(_SIGNATURE, start, stop)
    while at >= 0:
        _, _, header, size = FATBIN_HEADER.unpack_from(data, at)
        end = at + header + size
        yield from read_fat_binaries(data, at, min(end, stop))
        at = data.find(_SIGNATURE, max(end, at + 1), stop)


def _read_fatbin_entries(data: mmap, at: int, end: int, container: int) -> Iterator[DeviceImage]:
    while at < end:
        if at + FATBIN_ENTRY.size > end:
            raise DeviceCodeError(f"the CUDA fat binary at offset {container:#x} is cut off")
        kind, _, header, size, packed, _, _, _, number, _, _, flags = FATBIN_ENTRY.unpack_from(
            data, at
        )
        code, following = at + header, at + header + size
        if header < FATBIN_ENTRY.size or following > end:
            raise DeviceCodeError(f"the CUDA fat binary at offset {container:#x} is damaged")
        compression = _flag_name(_COMPRESSION, flags) or (_UNKNOWN if packed else "")
        if _KINDS.get(kind) == "machine" and not compression:
            _check_cubin_arch(data, code, number)
        yield DeviceImage(
            "cuda",
            f"{number // 10}.{number % 10}{_flag_name(_FEATURES, flags)}",
            _KINDS.get(kind, f"kind {kind}"),
            header + size,
            container,
            compression,
        )
        at = following


def _flag_name(names: dict[int, str], flags: int) -> str:
    return next((name for flag, name in names.items() if flags & flag), "")


def _check_cubin_arch(data: mmap, at: int, number: int) -> None:
    """A cubin says itself what it is for: the entry must say the same."""
    if data[at : at + 4] != _ELF_MAGIC:
        raise DeviceCodeError(f"the machine code at offset {at:#x} is not a cubin")
    abi, machine, flags = _CUBIN_HEADER.unpack_from(data, at)
    own = (flags >> 8 if abi >= _FIRST_SHIFTED_ABI else flags) & 0xFF
    if machine != _EM_CUDA or own != number:
        raise DeviceCodeError(f"the cubin at offset {at:#x} is not for {number}, as its entry says")
