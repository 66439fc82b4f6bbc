"""Bytes of small Mach-O and PE libraries, written field by field: no compiler for them is needed.

Layouts: Apple's `mach-o/loader.h` and `mach-o/nlist.h`; Microsoft's PE format, sections
"Optional Header", "The .idata Section" and "The .edata Section".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

CPUS = {"x86_64": 0x01000007, "aarch64": 0x0100000C}
MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64, "i686": 0x14C}
MACOS, IOS = 1, 2


def _packed(version: str) -> int:
    major, minor, patch = ([int(part) for part in version.split(".")] + [0, 0])[:3]
    return major << 16 | minor << 8 | patch


def _command(number: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<II", number, 8 + len(body)) + body


def macho(
    cpu: str = "aarch64",
    *,
    minos: str | None = "15.0",
    old_command: bool = False,
    platform: int = MACOS,
    needed: Sequence[str] = ("/usr/lib/libSystem.B.dylib", "@rpath/libc10.dylib"),
    rpaths: Sequence[str] = (),
    undefined: Sequence[str] = (),
    exported: Sequence[str] = (),
    bundle: bool = True,
) -> bytes:
    """A bundle (what Python loads) or, with `bundle=False`, an object file."""
    commands = []
    if minos and old_command:
        commands.append(_command(0x24, struct.pack("<II", _packed(minos), 0)))
    elif minos:
        commands.append(_command(0x32, struct.pack("<IIII", platform, _packed(minos), 0, 0)))
    for name in needed:
        body = struct.pack("<IIII", 24, 0, 0, 0) + name.encode() + b"\0"
        commands.append(_command(0xC, body))
    paths = (struct.pack("<I", 12) + path.encode() + b"\0" for path in rpaths)
    commands += [_command(0x8000001C, body) for body in paths]
    strings, entries = b"\0", b""
    for name, kind, section in [(n, 0x01, 0) for n in undefined] + [(n, 0x0F, 1) for n in exported]:
        entries += struct.pack("<IBBHQ", len(strings), kind, section, 0, 0)
        strings += f"_{name}".encode() + b"\0"
    count = len(undefined) + len(exported)
    size = sum(map(len, commands)) + 24
    start = 32 + size
    table = struct.pack("<IIII", start, count, start + len(entries), len(strings))
    commands.append(_command(0x2, table))
    kind = 8 if bundle else 1
    head = struct.pack("<IIIIIIII", 0xFEEDFACF, CPUS[cpu], 0, kind, len(commands), size, 0, 0)
    return head + b"".join(commands) + entries + strings


def universal(*slices: bytes) -> bytes:
    """Several Mach-O files in one, for several CPUs."""
    head, body = struct.pack(">II", 0xCAFEBABE, len(slices)), b""
    start = 4096
    for part in slices:
        (cpu,) = struct.unpack_from("<I", part, 4)
        head += struct.pack(">IIIII", cpu, 0, start + len(body), len(part), 12)
        body += part + bytes(-len(part) % 4096)
    return head + bytes(start - len(head)) + body


_BASE = 0x1000  # where the only section is, in memory
_RAW = 0x400  # and in the file


def pe(
    cpu: str = "x86_64",
    *,
    imports: Mapping[str, Sequence[str]] | None = None,
    exported: Sequence[str] = (),
    dll: bool = True,
) -> bytes:
    """A DLL with an import and an export table in its only section."""
    data = bytearray()

    def put(part: bytes) -> int:
        data.extend(bytes(-len(data) % 8))
        data.extend(part)
        return _BASE + len(data) - len(part)

    wanted = {"KERNEL32.dll": ["Sleep"]} if imports is None else imports
    descriptors = b""
    for library, names in wanted.items():
        hints = [put(struct.pack("<H", 0) + name.encode() + b"\0") for name in names]
        table = put(struct.pack(f"<{len(hints) + 1}Q", *hints, 0))
        name = put(library.encode() + b"\0")
        descriptors += struct.pack("<IIIII", table, 0, 0, name, table)
    import_at = put(descriptors + bytes(20))
    import_size = len(descriptors) + 20
    names = [put(name.encode() + b"\0") for name in exported]
    functions = put(struct.pack(f"<{len(names)}I", *([_BASE] * len(names))))
    pointers = put(struct.pack(f"<{len(names)}I", *names))
    ordinals = put(struct.pack(f"<{len(names)}H", *range(len(names))))
    own = put(b"x.dll\0")
    directory = (0, 0, 0, 0, own, 1, len(names), len(names), functions, pointers, ordinals)
    export_at = put(struct.pack("<IIHHIIIIIII", *directory))
    data.extend(bytes(-len(data) % 0x200))
    return _headers(cpu, dll, len(data), (export_at, 40), (import_at, import_size)) + bytes(data)


def _headers(
    cpu: str, dll: bool, size: int, exports: tuple[int, int], imports: tuple[int, int]
) -> bytes:
    flags = 0x22 | (0x2000 if dll else 0)
    dos = b"MZ" + bytes(58) + struct.pack("<I", 64)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", MACHINES[cpu], 1, 0, 0, 0, 240, flags)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, size, 0, 0, _BASE)
    optional += struct.pack("<QII", 0x180000000, 0x1000, 0x200)
    optional += struct.pack("<HHHHHHI", 6, 0, 0, 0, 6, 0, 0)
    image = _BASE + size + (-size % 0x1000)
    optional += struct.pack("<IIIHHQQQQII", image, _RAW, 0, 2, 0, 0, 0, 0, 0, 0, 16)
    optional += struct.pack("<IIII", *exports, *imports) + bytes(14 * 8)
    section = struct.pack(
        "<8sIIIIIIHHI", b".rdata", size, _BASE, size, _RAW, 0, 0, 0, 0, 0x40000040
    )
    head = dos + coff + optional + section
    return head + bytes(_RAW - len(head))
