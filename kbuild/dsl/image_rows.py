"""The images of a build: a row for each op and target, their compilers, and what kernels need.

Registers and memory of NVIDIA's kernels are read from the machine code of cubins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES
from kbuild.plan.plan import AotKernel, VariantPlan
from kbuild.project.licences import metadata_entry
from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import reading

Images: TypeAlias = "tuple[tuple[AotKernel, tuple[UnitImage, ...]], ...]"
"""Every kernel with its images."""


@dataclass(frozen=True)
class ImageRow:
    """All images of one op for one arch, added up."""

    kernel: str
    """The `[kernel.*]` section."""
    op: str
    target: str
    """`sm_90a`, `compute_80` (PTX), `gfx942`."""
    images: int
    size: int
    """Bytes of device code."""
    cached: int
    """Images that were compiled before."""
    seconds: float
    """Seconds of compiling the others, one after the other."""
    shared: int
    """Bytes of shared memory of a block, of the image that takes most."""
    registers: int | None = None
    """Registers of the image with most, where the compiler says so."""
    spills: int | None = None
    """Bytes, on AMD registers, that did not fit, of the image with most; see `registers`."""
    local: int | None = None
    """Bytes of local memory of a thread, of the image with most, where machine code says so: what
    did not fit into registers, and arrays."""


def image_rows(images: Images) -> tuple[ImageRow, ...]:
    """A row for each op and target, in the order of the plan."""
    groups: dict[tuple[str, str, str], list[UnitImage]] = {}
    for kernel, compiled in images:
        for unit_image in compiled:
            key = (kernel.name, unit_image.unit.op, str(unit_image.unit.target))
            groups.setdefault(key, []).append(unit_image)
    return tuple(_row(*key, group) for key, group in groups.items())


def with_image_compilers(plan: VariantPlan, images: Images) -> VariantPlan:
    """The plan with the compilers of the images in its toolchain."""
    versions_by_name: dict[str, set[str]] = {}
    for _, compiled in images:
        for unit_image in compiled:
            for name, version in unit_image.image.compiler.items():
                versions_by_name.setdefault(name, set()).add(version)
    if plan.toolchain is None or not versions_by_name:
        return plan
    listed = (
        (name, ", ".join(sorted(versions))) for name, versions in sorted(versions_by_name.items())
    )
    versions = (*plan.toolchain.versions, *listed, *_licences(images))
    return plan.with_toolchain(replace(plan.toolchain, versions=versions))


def _licences(images: Images) -> Iterator[tuple[str, str]]:
    """Licences of others' code that is linked into the variant."""
    parts_by_name: dict[str, list[str]] = {}
    for kernel, compiled in images:
        if any(unit_image.image.kind == "object" for unit_image in compiled):
            for name, what in LANGUAGES.get(kernel.language).licences(kernel.toolchain).items():
                parts_by_name.setdefault(name, []).append(what)
    for name, parts in sorted(parts_by_name.items()):
        yield metadata_entry(name), " and ".join(sorted(set(parts)))


def _row(kernel: str, op: str, target: str, group: Sequence[UnitImage]) -> ImageRow:
    codes = {unit_image.code: unit_image for unit_image in group}  # candidates may share one
    needs = [_resources_of(unit_image) for unit_image in codes.values()]
    return ImageRow(
        kernel,
        op,
        target,
        images=len(group),
        size=sum(map(len, codes)),
        cached=sum(1 for unit_image in group if unit_image.cached),
        seconds=round(sum(unit_image.seconds for unit_image in group if not unit_image.cached), 3),
        shared=max(need.shared for need in needs),
        registers=_max_known(need.registers for need in needs),
        spills=_max_known(unit_image.image.spills for unit_image in group),
        local=_max_known(need.local for need in needs),
    )


@dataclass(frozen=True)
class _ImageResources:
    """The most registers, local and shared memory of one image's kernels."""

    registers: int | None
    local: int | None
    shared: int


def _resources_of(unit_image: UnitImage) -> _ImageResources:
    """Read the resources from the code, or from the compiler if the driver compiles it later."""
    kernels = read_kernel_resources(unit_image.code)
    return _ImageResources(
        _max_known([unit_image.image.registers, *(kernel.registers for kernel in kernels)]),
        _max_known(kernel.local for kernel in kernels),
        unit_image.image.shared + max((kernel.shared for kernel in kernels), default=0),
    )


def _max_known(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


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
