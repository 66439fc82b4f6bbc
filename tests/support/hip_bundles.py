"""What is in a built extension for ROCm."""

from __future__ import annotations

import io
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
DEVICE = "hipv4-amdgcn-amd-amdhsa--"


def bundled(image: bytes) -> dict[str, int]:
    """Target -> size of its code object (clang's offload bundle format)."""
    assert image.startswith(MAGIC)
    (count,) = struct.unpack_from("<Q", image, len(MAGIC))
    at, found = len(MAGIC) + 8, {}
    for _ in range(count):
        _, size, length = struct.unpack_from("<QQQ", image, at)
        at += 24
        found[image[at : at + length].decode()] = size
        at += length
    return found


def extension(folder: Path) -> ELFFile:
    """The one extension of a variant directory."""
    (file,) = folder.glob("*.so")
    return ELFFile(io.BytesIO(file.read_bytes()))


def section(folder: Path, name: str) -> bytes:
    """The bytes of one section of the extension."""
    data: bytes = extension(folder).get_section_by_name(name).data()
    return data


def needed(folder: Path) -> set[str]:
    """The libraries that the extension names."""
    tags = extension(folder).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
    return {tag.needed for tag in tags}
