"""Bytes of small Mach-O libraries, written field by field: no compiler for them is needed.

Layouts: Apple's `mach-o/loader.h` and `mach-o/nlist.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

CPUS = {"x86_64": 0x01000007, "aarch64": 0x0100000C}
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
