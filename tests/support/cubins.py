"""Cubins made by hand: nothing but what says which resources kernels take."""

from __future__ import annotations

import struct

_INFO_TYPE, _NO_BITS, _STRINGS, _SYMBOLS = 0x70000000, 8, 3, 2


def cubin(
    kernels: dict[str, tuple[int, int, int]], *, machine: int = 190, more: bytes = b""
) -> bytes:
    """Kernel -> registers, frame, shared memory."""
    strings, symbols = b"\0", bytes(24)
    info = struct.pack("<BBH", 3, 0x1B, 255) + more
    sections: list[tuple[str, int, bytes, int, int]] = []
    for at, (name, (registers, frame, shared)) in enumerate(kernels.items(), start=1):
        symbols += struct.pack("<I20x", len(strings))
        strings += name.encode() + b"\0"
        info += struct.pack("<BBHII", 4, 0x2F, 8, at, registers)
        info += struct.pack("<BBHII", 4, 0x11, 8, at, frame)
        if shared:
            sections.append((f".nv.shared.{name}", _NO_BITS, b"", shared, 0))
    sections = [
        ("", 0, b"", 0, 0),
        (".strtab", _STRINGS, strings, len(strings), 0),
        (".symtab", _SYMBOLS, symbols, len(symbols), 1),
        (".nv.info", _INFO_TYPE, info, len(info), 2),
        (".nv.shared.reserved.0", _NO_BITS, b"", 1024, 0),
        *sections,
    ]
    names = b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", _STRINGS, names, len(names), 0))
    body, headers, place = b"", b"", 64
    for name, kind, data, size, link in sections:
        at = names.index(name.encode() + b"\0")
        headers += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, place, size, link, 0, 1, 0)
        body, place = body + data, place + len(data)
    head = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 65, 2, machine, 1, 0, 0, place, 0, 64, 0, 0,
        64, len(sections), len(sections) - 1,
    )  # fmt: skip
    return head + body + headers
