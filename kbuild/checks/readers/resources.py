"""What kernels in NVIDIA's machine code take of a multiprocessor, as the code says itself.

A cubin lists attributes of its functions in `.nv.info`; which number says what was found beside
the listings of `cuobjdump --dump-resource-usage`, of CUDA 12.9 to 13.4. How much did not fit into
registers is not among them: it is a part of the local memory, with arrays that are indexed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kbuild.errors import DamagedFileError
from kbuild.untrusted import reading

_ELF = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<18xH20xQ10xHHH")
"""Machine; offset of the section headers, their size and number, and which has their names."""
_SECTION = struct.Struct("<II16xQQII16x")
"""Name, type, offset, size, link, info."""
_SYMBOL = struct.Struct("<I20x")
_CUDA = 190
_NO_BITS = 8
_INFO, _SHARED = ".nv.info", ".nv.shared."
_LONGEST_NAME = 1 << 14
_RESERVED = ".nv.shared.reserved."
_ATTRIBUTE = struct.Struct("<BBH")
"""Form, attribute, and the value or the number of its bytes."""
_WITH_BYTES = 4
_PAIR = struct.Struct("<II")
_REGISTERS, _FRAME = 0x2F, 0x11


@dataclass(frozen=True)
class Resources:
    """Of one kernel."""

    name: str
    registers: int
    """Of each thread."""
    local: int
    """Bytes of local memory of each thread: what did not fit into registers, and arrays."""
    shared: int
    """Bytes of shared memory of a block, besides what a launch asks for."""


def resources(code: bytes) -> tuple[Resources, ...]:
    """Of every kernel of every cubin in a file that is not compressed: a cubin, an object.

    Nothing is said of a cubin that cannot be read.
    """
    found: list[Resources] = []
    at = code.find(_ELF)
    while at >= 0:
        with suppress(DamagedFileError), reading("the file", "a cubin"):
            found += _of_cubin(memoryview(code)[at:])
        at = code.find(_ELF, at + 1)
    return tuple(found)


@dataclass(frozen=True)
class _Section:
    name: str
    type: int
    data: memoryview
    size: int
    link: int


def _of_cubin(elf: memoryview) -> Iterator[Resources]:
    machine, offset, size, count, names = _HEADER.unpack_from(elf)
    if machine != _CUDA:
        return
    if size < _SECTION.size or offset + size * count > len(elf):
        raise ValueError("its section headers reach beyond the file's end")
    rows = [_SECTION.unpack_from(elf, offset + size * at) for at in range(count)]
    texts = elf[rows[names][2] : rows[names][2] + rows[names][3]]
    sections = [
        _Section(
            _text(texts, name),
            kind,
            elf[start : start + (0 if kind == _NO_BITS else length)],
            length,
            link,
        )
        for name, kind, start, length, link, _ in rows
    ]
    shared = {
        one.name.removeprefix(_SHARED): one.size
        for one in sections
        if one.name.startswith(_SHARED) and not one.name.startswith(_RESERVED)
    }
    for info in (one for one in sections if one.name == _INFO):
        table = sections[info.link]
        strings = sections[table.link].data
        for symbol, numbers in _numbers(info.data).items():
            (name,) = _SYMBOL.unpack_from(table.data, symbol * _SYMBOL.size)
            kernel = _text(strings, name)
            if _REGISTERS in numbers:
                registers, local = numbers[_REGISTERS], numbers.get(_FRAME, 0)
                yield Resources(kernel, registers, local, shared.get(kernel, 0))


def _numbers(data: memoryview) -> Mapping[int, Mapping[int, int]]:
    """Symbol -> attribute -> number, of the attributes that are of a symbol."""
    found: dict[int, dict[int, int]] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        form, attribute, value = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form != _WITH_BYTES:
            continue
        if value == _PAIR.size:
            symbol, number = _PAIR.unpack_from(data, at)
            found.setdefault(symbol, {})[attribute] = number
        at += value
    return found


def _text(table: memoryview, at: int) -> str:
    return bytes(table[at : at + _LONGEST_NAME]).partition(b"\0")[0].decode()
