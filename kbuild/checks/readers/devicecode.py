"""Which device code an ELF file holds: for every GPU it names, what kind and how large.

Only headers are read, through a memory map: a file of 100 MB costs milliseconds. There is no
maintained library for these containers, so `fatbin` and `hip` read them; tests compare the result
with NVIDIA's and LLVM's own tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kbuild.checks.readers import fatbin, hip, raw
from kbuild.checks.readers.elf import UnreadableBinaryError, sound
from kbuild.checks.readers.image import CompressedError, Image

_SYCL = "__CLANG_OFFLOAD_BUNDLE__sycl-"
_READERS: Mapping[str, Callable[[mmap, int, int], Iterator[Image]]] = {
    ".nv_fatbin": fatbin.images,
    ".hip_fatbin": hip.images,
    fatbin.SCATTERED: fatbin.scattered,
    raw.SECTION: raw.images,
}
_RELOCATABLE = "__nv_relfatbin"
_REGISTERS = (".nvFatBinSegment", ".hipFatBinSegment")
_NO_BITS = "SHT_NOBITS"


@dataclass(frozen=True)
class DeviceCode:
    """What one file holds."""

    images: tuple[Image, ...] = ()
    """In the file's order; what the device linker has still to link is not among them."""
    registers: bool = False
    """True when the host code tells a GPU runtime of device code, be it there or not."""
    relocatable: bool = False
    """True when there is CUDA code that waits for the device linker."""
    unread: str = ""
    """Why some of it could not be read; empty when all was."""
    paths: tuple[str, ...] = ()
    """Files of the machine that compiled which images outside of containers name."""


def read_device_code(path: Path) -> DeviceCode:
    """Read one file; a second look at an unchanged file costs nothing.

    Raises:
        DeviceCodeError: damaged containers, or of a form that is not known.
        UnreadableBinaryError: no sound ELF file.
    """
    status = path.stat()
    return _read(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, _size: int, _mtime: int) -> DeviceCode:
    from kbuild.checks.readers.lean import LeanElf

    with (
        sound("ELF"),
        path.open("rb") as file,
        mmap(file.fileno(), 0, access=ACCESS_READ) as data,
    ):
        sections = {
            section.name: (section["sh_offset"], section["sh_offset"] + section["sh_size"])
            for section in LeanElf(file).iter_sections()
            if section["sh_type"] != _NO_BITS
        }
        return _view(data, sections)


def _view(data: mmap, sections: dict[str, tuple[int, int]]) -> DeviceCode:
    if any(stop > len(data) for _, stop in sections.values()):
        raise UnreadableBinaryError("a section reaches beyond the file's end")
    images, unread = list(_sycl(sections)), ""
    try:
        for name, read in _READERS.items():
            images.extend(read(data, *sections.get(name, (0, 0))))
    except CompressedError as error:
        unread = str(error)
    return DeviceCode(
        tuple(images),
        registers=any(name in sections for name in _REGISTERS),
        relocatable=_RELOCATABLE in sections,
        unread=unread,
        paths=tuple(raw.paths(data, *sections.get(raw.SECTION, (0, 0)))),
    )


def _sycl(sections: dict[str, tuple[int, int]]) -> Iterator[Image]:
    for name, (start, stop) in sections.items():
        if name.startswith(_SYCL):
            yield Image("xpu", name.removeprefix(_SYCL), "machine", stop - start, start)
