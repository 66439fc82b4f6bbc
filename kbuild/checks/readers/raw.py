"""Device images without a container: cubins, code objects and PTX in the section `.kbuild_images`.

kbuild's launchers of kernels in Python DSLs hold them so, one after the other with zeros between.
An image says itself what it is for: machine code of CUDA 12's assembler in the flags of its header,
that of CUDA 13's in the note with its command line, as flags tell no features there (found by
giving ptxas 12.9, 13.0 and 13.4 all targets); AMD's in a note, as LLVM's "User Guide for AMDGPU
Backend" says; PTX in its `.target`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import mmap

from kbuild.checks.readers.image import DeviceCodeError, Image
from kbuild.checks.readers.padding import skip_padding

SECTION = ".kbuild_images"
_ELF = b"\x7fELF"
_HEADER = struct.Struct("<8xB9xH12xQQI2xHHHH")
"""ABI version, machine, offsets of the headers of segments and of sections, flags, then for both
the size and the number of these headers."""
_SECTION = struct.Struct("<4xI16xQQ")
"""Type, offset and size of a section."""
_NO_BITS = 8
_CUDA, _AMD = 190, 224
_FIRST_NOTED_ABI = 8
_FEATURE = 0x800
"""Of CUDA 12's flags: `a` code."""
_COMMAND = re.compile(rb"-arch sm_(\d+)(\d)([af]?)[ \0]")
_AMD_TARGET = re.compile(
    rb"amd(?:gcn|gpu[0-9a-f.]*)-amd-amdhsa-[a-z]*-(gfx[0-9a-f]+)((?::[a-z]+[+-])*)"
)
"""Older releases of LLVM write `amdgcn`, newer ones `amdgpu9.42` or `amdgpu9.0a`."""
_PATH = re.compile(rb"(?<![\w./-])/(?:[\w.+-]+/){2,}[\w.+-]+\.py\b")
_PTX_TARGET = re.compile(rb"^\.target\s+sm_(\d+)(\d)([af]?)\b", re.MULTILINE)


def images(data: mmap, start: int, stop: int) -> Iterator[Image]:
    """What lies between two offsets.

    Raises:
        DeviceCodeError: something there is no image, or damaged.
    """
    at = skip_padding(data, start, stop)
    while at < stop:
        end = _end_of_elf(data, at, stop) if data[at : at + 4] == _ELF else _end_of_text(data, at)
        if end > stop:
            raise DeviceCodeError(f"the device image at offset {at:#x} is cut off")
        yield _image(data[at:end], at)
        at = skip_padding(data, end, stop)


def paths(data: mmap, start: int, stop: int) -> Iterator[str]:
    """Absolute paths between two offsets, each once: files of the machine that compiled."""
    found = dict.fromkeys(match[0].decode() for match in _PATH.finditer(data[start:stop]))
    return iter(found)


def _end_of_elf(data: mmap, at: int, stop: int) -> int:
    """Behind the headers and the content of all sections."""
    try:
        _, _, segments, offset, _, *sizes, size, count = _HEADER.unpack_from(data, at)
        ends = [segments + sizes[0] * sizes[1], offset + size * count]
        for index in range(count):
            kind, begin, length = _SECTION.unpack_from(data, at + offset + size * index)
            ends.append(begin + length if kind != _NO_BITS else 0)
    except struct.error:
        return stop + 1
    return at + int(max(ends))


def _end_of_text(data: mmap, at: int) -> int:
    end = data.find(b"\0", at)
    return len(data) if end < 0 else end


def _image(code: bytes, at: int) -> Image:
    if not code.startswith(_ELF):
        arch = _capability(_PTX_TARGET.search(code), at)
        return Image("cuda", arch, "ptx", len(code), at, loose=True)
    abi, machine, _, _, flags, *_ = _HEADER.unpack_from(code)
    if machine == _AMD:
        target = _AMD_TARGET.search(code)
        if target is None:
            raise DeviceCodeError(f"the code object at offset {at:#x} does not say its target")
        modes = tuple(filter(None, target[2].decode().split(":")))
        return Image("rocm", target[1].decode(), "machine", len(code), at, "", modes, loose=True)
    if machine != _CUDA:
        raise DeviceCodeError(f"the image at offset {at:#x} is for no GPU")
    if abi >= _FIRST_NOTED_ABI:
        arch = _capability(_COMMAND.search(code), at)
        return Image("cuda", arch, "machine", len(code), at, loose=True)
    major, minor = divmod(flags & 0xFF, 10)
    feature = "a" if flags & _FEATURE else ""
    return Image("cuda", f"{major}.{minor}{feature}", "machine", len(code), at, loose=True)


def _capability(match: re.Match[bytes] | None, at: int) -> str:
    if match is None:
        raise DeviceCodeError(f"the device image at offset {at:#x} does not say what it is for")
    return f"{match[1].decode()}.{match[2].decode()}{match[3].decode()}"
