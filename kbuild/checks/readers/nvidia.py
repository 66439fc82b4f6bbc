"""NVIDIA device code: CUDA fat binaries, and registers and memory of the kernels in cubins."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap

from kbuild.checks.readers.device_image import DeviceCodeError, DeviceImage, skip_padding
from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import reading

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


_CUBIN_MAGIC = b"\x7fELF\x02\x01"
_CUBIN_LAYOUT = struct.Struct("<18xH20xQ10xHHH")
"""Machine; offset of the section headers, their size and number, and which has their names."""
_SECTION_LAYOUT = struct.Struct("<II16xQQII16x")
"""Name, type, offset, size, link, info."""
_SYMBOL_LAYOUT = struct.Struct("<I20x")
# ELF's `EM_CUDA` and `SHT_NOBITS`.
_CUDA_MACHINE = 190
_NO_BITS = 8
_INFO, _SHARED = ".nv.info", ".nv.shared."
_LONGEST_NAME = 1 << 14
_RESERVED = ".nv.shared.reserved."
_ATTRIBUTE = struct.Struct("<BBH")
"""Form, attribute, and the value or the number of its bytes."""
# `EIFMT_SVAL`, as `cuobjdump -elf` prints it.
_WITH_BYTES = 4
_PAIR = struct.Struct("<II")
# `EIATTR_REGCOUNT` and `EIATTR_FRAME_SIZE`, as `cuobjdump -elf` prints them.
_REGISTERS, _FRAME = 0x2F, 0x11


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel."""

    name: str
    registers: int
    """Registers of each thread."""
    local: int
    """Bytes of local memory of each thread: what did not fit into registers, and arrays."""
    shared: int
    """Bytes of shared memory of a block, besides what a launch asks for."""


def read_kernel_resources(code: bytes) -> tuple[KernelResources, ...]:
    """The resources of every kernel in an uncompressed file: a cubin, or an object.

    Nothing is said of a cubin that cannot be read.
    """
    resources: list[KernelResources] = []
    at = code.find(_CUBIN_MAGIC)
    # An object is an ELF file of the host, with cubins anywhere inside.
    while at >= 0:
        with suppress(DamagedFileError), reading("the file", "a cubin"):
            resources += _of_cubin(memoryview(code)[at:])
        at = code.find(_CUBIN_MAGIC, at + 1)
    return tuple(resources)


@dataclass(frozen=True)
class _CubinSection:
    name: str
    type: int
    data: memoryview
    size: int
    link: int


def _of_cubin(elf: memoryview) -> Iterator[KernelResources]:
    machine, offset, size, count, names = _CUBIN_LAYOUT.unpack_from(elf)
    if machine != _CUDA_MACHINE:
        return
    if size < _SECTION_LAYOUT.size or offset + size * count > len(elf):
        raise ValueError("its section headers reach beyond the file's end")
    rows = [_SECTION_LAYOUT.unpack_from(elf, offset + size * at) for at in range(count)]
    texts = elf[rows[names][2] : rows[names][2] + rows[names][3]]
    sections = [
        _CubinSection(
            _string_at(texts, name),
            kind,
            # Without bits in the file, a section's offset points to the bytes of another one.
            elf[start : start + (0 if kind == _NO_BITS else length)],
            length,
            link,
        )
        for name, kind, start, length, link, _ in rows
    ]
    shared = {
        section.name.removeprefix(_SHARED): section.size
        for section in sections
        if section.name.startswith(_SHARED) and not section.name.startswith(_RESERVED)
    }
    for info in (section for section in sections if section.name == _INFO):
        table = sections[info.link]
        strings = sections[table.link].data
        for symbol, numbers in _symbol_attributes(info.data).items():
            (name,) = _SYMBOL_LAYOUT.unpack_from(table.data, symbol * _SYMBOL_LAYOUT.size)
            kernel = _string_at(strings, name)
            if _REGISTERS in numbers:
                registers, local = numbers[_REGISTERS], numbers.get(_FRAME, 0)
                yield KernelResources(kernel, registers, local, shared.get(kernel, 0))


def _symbol_attributes(data: memoryview) -> Mapping[int, Mapping[int, int]]:
    """Symbol -> attribute -> number, of the attributes that are of a symbol."""
    attributes_by_symbol: dict[int, dict[int, int]] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        form, attribute, value = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form != _WITH_BYTES:
            continue
        if value == _PAIR.size:
            symbol, number = _PAIR.unpack_from(data, at)
            attributes_by_symbol.setdefault(symbol, {})[attribute] = number
        at += value
    return attributes_by_symbol


def _string_at(table: memoryview, at: int) -> str:
    return bytes(table[at : at + _LONGEST_NAME]).partition(b"\0")[0].decode()
