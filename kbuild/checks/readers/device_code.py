"""Reads the device code of an ELF file: for every GPU, what kind and how large.

Only headers are read, through a memory map. Also reads the section `.kbuild_images`, in which
launchers of Python DSL kernels keep cubins, code objects and PTX, which may be compressed, and
`.kbuild_objects`, in which linked objects keep code objects between other constants.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kbuild.checks.readers import hip_bundles, nvidia
from kbuild.checks.readers.device_image import (
    CompressedError,
    DeviceCodeError,
    DeviceImage,
    skip_padding,
)
from kbuild.checks.readers.elf import UnreadableBinaryError, cached_while_unchanged, sound_binary

RAW_SECTION = ".kbuild_images"
OBJECT_SECTION = ".kbuild_objects"
_ELF = b"\x7fELF"
_HEADER = struct.Struct("<8xB9xH12xQQI2xHHHH")
"""ABI version, machine, offsets of the headers of segments and of sections, flags, then for both
the size and the number of these headers."""
_ELF_SECTION = struct.Struct("<4xI16xQQ")
_SHT_NOBITS = 8
_EM_CUDA, _EM_AMDGPU = 190, 224
_FIRST_NOTED_ABI = 8
_FEATURE = 0x800
"""CUDA 12's flag for `a` code."""
_ASSEMBLER_COMMAND = re.compile(rb"-arch sm_(\d+)(\d)([af]?)[ \0]")
_AMD_TARGET = re.compile(
    rb"amd(?:gcn|gpu[0-9a-f.]*)-amd-amdhsa-[a-z]*-(gfx[0-9a-f]+)((?::[a-z]+[+-])*)"
)
"""Older releases of LLVM write `amdgcn`, newer ones `amdgpu9.42` or `amdgpu9.0a`."""
_NO_BLOCK = 0b110
"""Bits that are never set together in the first byte of a compressed image. They are in that of
ELF files and of PTX, which begins with `/` or `.`."""
_PIECE = 1 << 16
_LARGEST = 1 << 30
"""Bytes of an image; one of a damaged file could ask for any amount of memory."""
_SOURCE_PATH = re.compile(rb"(?<![\w./-])/(?:[\w.+-]+/){2,}[\w.+-]+\.py\b")
_PTX_TARGET = re.compile(rb"^\.target\s+sm_(\d+)(\d)([af]?)\b", re.MULTILINE)


def read_raw_images(data: mmap, start: int, stop: int) -> Iterator[DeviceImage]:
    """The images between two offsets.

    Raises:
        DeviceCodeError: something there is not an image, or damaged.
    """
    for at, code in _raw_codes(data, start, stop):
        yield _raw_image(code, at)


def _find_code_objects(data: mmap, start: int, stop: int) -> Iterator[DeviceImage]:
    at = data.find(_ELF, start, stop)
    while at >= 0:
        end = _end_of_elf(data, at, stop)
        if end > stop:
            raise DeviceCodeError(f"the device image at offset {at:#x} is cut off")
        yield _raw_image(data[at:end], at)
        at = data.find(_ELF, end, stop)


def source_paths(data: mmap, start: int, stop: int) -> Iterator[str]:
    """Absolute paths between two offsets, each once: files of the machine that compiled."""
    codes = (code for _, code in _raw_codes(data, start, stop))
    paths = (match[0].decode() for code in codes for match in _SOURCE_PATH.finditer(code))
    return iter(dict.fromkeys(paths))


def _raw_codes(data: mmap, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Offsets and images, which may be compressed."""
    at = skip_padding(data, start, stop)
    while at < stop:
        if data[at : at + 4] == _ELF:
            end = _end_of_elf(data, at, stop)
            code = data[at:end]
        # Neither ELF nor compressed: PTX, a text that ends with NUL.
        elif data[at] & _NO_BLOCK == _NO_BLOCK:
            end = data.find(b"\0", at)
            end = len(data) if end < 0 else end
            code = data[at:end]
        else:
            code, end = _inflated(data, at, stop)
        if end > stop:
            raise DeviceCodeError(f"the device image at offset {at:#x} is cut off")
        yield at, code
        at = skip_padding(data, end, stop)


def _inflated(data: mmap, at: int, stop: int) -> tuple[bytes, int]:
    """A compressed image, and the offset behind it."""
    # The negative number means deflate alone, without zlib's header and checksum.
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    parts, end, size = [], at, 0
    try:
        while not unpacker.eof and end < stop:
            piece = data[end : min(end + _PIECE, stop)]
            # One byte more than allowed, so that a larger image is noticed.
            parts.append(unpacker.decompress(piece, _LARGEST - size + 1))
            size += len(parts[-1])
            if size > _LARGEST:
                raise DeviceCodeError(f"the device image at offset {at:#x} is over 1 GiB")
            end += len(piece)
    except zlib.error:
        message = f"the device image at offset {at:#x} does not say what it is for"
        raise DeviceCodeError(message) from None
    return b"".join(parts), end - len(unpacker.unused_data) if unpacker.eof else stop + 1


def _end_of_elf(data: mmap, at: int, stop: int) -> int:
    """Offset of the end of an ELF image: of its headers, and of all sections."""
    try:
        _, _, segments, offset, _, *sizes, size, count = _HEADER.unpack_from(data, at)
        ends = [segments + sizes[0] * sizes[1], offset + size * count]
        for index in range(count):
            kind, begin, length = _ELF_SECTION.unpack_from(data, at + offset + size * index)
            ends.append(begin + length if kind != _SHT_NOBITS else 0)
    except struct.error:
        return stop + 1
    return at + int(max(ends))


def _raw_image(code: bytes, at: int) -> DeviceImage:
    if not code.startswith(_ELF):
        arch = _capability(_PTX_TARGET.search(code), at)
        return DeviceImage("cuda", arch, "ptx", len(code), at, loose=True)
    abi, machine, _, _, flags, *_ = _HEADER.unpack_from(code)
    if machine == _EM_AMDGPU:
        target = _AMD_TARGET.search(code)
        if target is None:
            raise DeviceCodeError(f"the code object at offset {at:#x} does not say its target")
        modes = tuple(filter(None, target[2].decode().split(":")))
        return DeviceImage(
            "rocm", target[1].decode(), "machine", len(code), at, "", modes, loose=True
        )
    if machine != _EM_CUDA:
        raise DeviceCodeError(f"the image at offset {at:#x} is for no GPU")
    if abi >= _FIRST_NOTED_ABI:
        arch = _capability(_ASSEMBLER_COMMAND.search(code), at)
        return DeviceImage("cuda", arch, "machine", len(code), at, loose=True)
    major, minor = divmod(flags & 0xFF, 10)
    feature = "a" if flags & _FEATURE else ""
    return DeviceImage("cuda", f"{major}.{minor}{feature}", "machine", len(code), at, loose=True)


def _capability(match: re.Match[bytes] | None, at: int) -> str:
    if match is None:
        raise DeviceCodeError(f"the device image at offset {at:#x} does not say what it is for")
    return f"{match[1].decode()}.{match[2].decode()}{match[3].decode()}"


_SYCL = "__CLANG_OFFLOAD_BUNDLE__sycl-"
_READERS: Mapping[str, Callable[[mmap, int, int], Iterator[DeviceImage]]] = {
    ".nv_fatbin": nvidia.read_fat_binaries,
    ".hip_fatbin": hip_bundles.read_offload_bundles,
    nvidia.LARGE_CONSTANTS_SECTION: nvidia.find_fat_binaries,
    RAW_SECTION: read_raw_images,
    OBJECT_SECTION: _find_code_objects,
}
_RELOCATABLE = "__nv_relfatbin"
_REGISTERS = (".nvFatBinSegment", ".hipFatBinSegment")
_NO_BITS_TYPE = "SHT_NOBITS"


@dataclass(frozen=True)
class DeviceCode:
    """The device code of one file."""

    images: tuple[DeviceImage, ...] = ()
    """Images in the file's order, without those that the device linker has still to link."""
    registers: bool = False
    """True when the host code tells a GPU runtime of device code, be it there or not."""
    relocatable: bool = False
    """True when there is CUDA code that waits for the device linker."""
    unread: str = ""
    """Reason that some of it could not be read; empty when all was."""
    paths: tuple[str, ...] = ()
    """Files of the machine that compiled which images outside of containers name."""

    @property
    def is_unlinked(self) -> bool:
        """True when no CUDA code went through the device linker, and some waits for it."""
        return self.relocatable and not any(image.backend == "cuda" for image in self.images)


@cached_while_unchanged
def read_device_code(path: Path) -> DeviceCode:
    """Read one file.

    Raises:
        DeviceCodeError: damaged containers, or of a form that is not known.
        UnreadableBinaryError: no sound ELF file.
    """
    from kbuild.checks.readers.fast_elf import FastElf

    with (
        sound_binary("ELF"),
        path.open("rb") as file,
        mmap(file.fileno(), 0, access=ACCESS_READ) as data,
    ):
        sections = {
            section.name: (section["sh_offset"], section["sh_offset"] + section["sh_size"])
            for section in FastElf(file).iter_sections()
            if section["sh_type"] != _NO_BITS_TYPE
        }
        if any(stop > len(data) for _, stop in sections.values()):
            raise UnreadableBinaryError("a section reaches beyond the file's end")
        images = [
            DeviceImage("xpu", name.removeprefix(_SYCL), "machine", stop - start, start)
            for name, (start, stop) in sections.items()
            if name.startswith(_SYCL)
        ]
        unread = ""
        try:
            for name, read in _READERS.items():
                # A section that is absent counts as empty.
                images.extend(read(data, *sections.get(name, (0, 0))))
        except CompressedError as error:
            unread = str(error)
        return DeviceCode(
            tuple(images),
            registers=any(name in sections for name in _REGISTERS),
            relocatable=_RELOCATABLE in sections,
            unread=unread,
            paths=tuple(source_paths(data, *sections.get(RAW_SECTION, (0, 0)))),
        )
