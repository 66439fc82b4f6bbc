"""Readers of libraries and device code, with small files of each kind to start from."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from fuzzing.common import IDENTIFIER, VARIANT, put

from kbuild.system.errors import KbuildError


def _library(data: bytes, folder: Path, name: str) -> object:
    """All checks of one library, as `kbuild check --abi` runs them."""
    from kbuild.checks.base import Output
    from kbuild.checks.report import LIBRARY_GROUPS, CheckSelection, run_selected_checks
    from kbuild.project.variant import Variant

    library = put(folder, f"{VARIANT}/{name}", data)
    output = Output(library.parent, Variant.parse(VARIANT), alone=library)
    wanted = CheckSelection(slow=False, groups=LIBRARY_GROUPS)
    return run_selected_checks(output, wanted.checks(), wanted).to_json()


def checked_elf(data: bytes, folder: Path) -> object:
    return _library(data, folder, f"{IDENTIFIER}.abi3.so")


def elf(data: bytes, folder: Path) -> object:
    from kbuild.checks.archs import linked_device_libraries
    from kbuild.checks.readers.elf import read_elf
    from kbuild.checks.static import find_static_libraries

    path = put(folder, "a.so", data)
    for read in (read_elf, linked_device_libraries, find_static_libraries):
        try:
            read(path)
        except KbuildError as error:
            str(error)
    return None


def device_code(data: bytes, folder: Path) -> object:
    from kbuild.checks.readers.device_code import read_device_code
    from kbuild.checks.readers.nvidia import read_kernel_resources

    read_kernel_resources(data)
    return read_device_code(put(folder, "a.so", data))


def carried(section: str) -> Callable[[bytes, Path], object]:
    """Device code inside a sound library, so that the container itself is what is read."""

    def run(data: bytes, folder: Path) -> object:
        from tests.support.device_code import elf

        return device_code(elf({section: data}), folder)

    return run


def macho(data: bytes, folder: Path) -> object:
    from kbuild.checks.readers.macho import read_macho

    return read_macho(put(folder, "a.dylib", data))


def object_archive(data: bytes, _folder: Path) -> object:
    from kbuild.toolchains.manylinux.environment import newer_members, write_archive

    return write_archive(newer_members(data, {"here"}))


@cache
def elf_seeds() -> list[bytes]:
    """A library without anything, and what the dynamic linker reads, written byte by byte."""
    from tests.support.device_code import dynamic_elf, elf

    return [dynamic_elf(), elf({".text": b"\x90" * 16})]


def device_seeds(kind: str) -> Callable[[], Sequence[bytes]]:
    def seeds() -> Sequence[bytes]:
        from tests.support import device_code as bench

        if kind == "fatbin":
            entries = ((bench.MACHINE, "90a"), (bench.PTX, "80"))
            made = [bench.fatbin(*entries), bench.fatbin((bench.MACHINE, "120"))]
        elif kind == "hip":
            made = [bench.bundle("gfx942:xnack-"), bench.bundle("gfx90a", "gfx942")]
            made += [_packed(data) for data in made]
        else:
            made = [bench.loose(bench.noted("90a"), bench.older("80"), bench.code_object("gfx942"))]
            made.append(b".version 8.0\n.target sm_90\n\0\0\0")
        real = [p.read_bytes() for p in sorted(bench.REAL.glob("*")) if kind in p.name]
        return [*made, *(data for data in real if len(data) < 1 << 15)]

    return seeds


def _packed(bundle: bytes) -> bytes:
    import zlib

    packed = zlib.compress(bundle)
    return struct.pack("<4sHHIIQ", b"CCOB", 2, 0, 24 + len(packed), len(bundle), 0) + packed


def macho_seeds() -> Sequence[bytes]:
    from tests.support.macho import macho, universal

    names = {"undefined": ["PyList_New"], "exported": ["PyInit_x"]}
    thin = [macho(rpaths=("@loader_path",), **names), macho("x86_64", old_command=True, **names)]
    return [*thin, universal(*thin)]


def archive_seeds() -> Sequence[bytes]:
    member = elf_seeds()[0]
    head = f"{'a.o/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(member):<10}`\n".encode()
    return [b"!<arch>\n" + head + member + b"\n" * (len(member) % 2)]
