"""Device code for tests: containers written byte by byte, and libraries that carry them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

REAL = Path(__file__).parent / "device_code_files"
"""Containers that real compilers wrote, see `make.sh` there."""
PTX, MACHINE, LTO = 1, 2, 8
FEATURES = {"": 0, "a": 0x100000, "f": 0x200000}
HIP = "hipv4-amdgcn-amd-amdhsa--"
HOST = "host-x86_64-unknown-linux-gnu-"
Entry = tuple[int, str]
Library = Callable[..., bytes]


def cubin(number: int) -> bytes:
    """An ELF header as ptxas of CUDA 13 writes it."""
    ident = b"\x7fELF\x02\x01\x01\x41\x08".ljust(16, b"\0")
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 0, number << 8, 64, 0, 0, 0, 0, 0)


def noted(arch: str, extra: bytes = b"") -> bytes:
    """A cubin as an assembler of CUDA 13 writes it, with the note that has its command line."""
    note = b"ptxas\0Cuda compilation tools\0-arch sm_" + arch.encode() + b" \0" + extra
    return _with_section(note, 8, int(arch.rstrip("af")) << 8, 190)


def older(arch: str) -> bytes:
    """A cubin as an assembler of CUDA 12 writes it."""
    flags = int(arch.rstrip("af")) | (0x800 if arch.endswith("a") else 0)
    return _with_section(b"code", 7, flags, 190)


def code_object(target: str, prefix: str = "amdgcn-amd-amdhsa-") -> bytes:
    """An hsaco: its notes name `gfx942` or `gfx942:xnack-`, behind LLVM's triple."""
    return _with_section(f"{prefix}-{target}\0".encode(), 4, 0x4C, 224)


def _with_section(content: bytes, abi: int, flags: int, machine: int) -> bytes:
    content = content.ljust(-(-len(content) // 8) * 8, b"\0")
    ident = b"\x7fELF\x02\x01\x01\x41".ljust(8, b"\0") + bytes([abi]) + bytes(7)
    at = 64 + len(content)
    head = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, at, flags, 64, 56, 0, 64, 2, 0)
    table = bytes(64) + struct.pack("<IIQQQQIIQQ", 0, 7, 0, 0, 64, len(content), 0, 0, 8, 0)
    return ident + head + content + table


def loose(*images: bytes) -> bytes:
    """Images one after the other, as kbuild's launchers of kernels in DSLs hold them."""
    return b"".join(image.ljust(-(-len(image) // 16) * 16, b"\0") for image in images)


def fatbin(*entries: Entry, inside: int | None = None) -> bytes:
    """A container with one entry per (kind, `90a`); `inside`: the number that the cubins say."""
    parts = [_entry(kind, arch, inside) for kind, arch in entries]
    body = b"".join(parts)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _entry(kind: int, arch: str, inside: int | None) -> bytes:
    number = int(arch.rstrip("af"))
    code = cubin(inside or number) if kind == MACHINE else b".version 9.0\n\0\0\0"
    flags = 0x11 | FEATURES[arch.lstrip("0123456789")]
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(code))
    return (head + struct.pack("<IIHHIIIQ", 0, 0, 8, 1, number, 0, 0, flags)).ljust(
        64, b"\0"
    ) + code


def bundle(*targets: str, size: int = 64) -> bytes:
    """A plain offload bundle with code of `size` bytes for each of `gfx942`, ..."""
    names = [HOST, *(f"{HIP}{target}" for target in targets)]
    table, at = b"", 4096
    for name in names:
        bytes_ = 0 if name == HOST else size
        table += struct.pack("<QQQ", at, bytes_, len(name)) + name.encode()
        at += bytes_
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(names)) + table
    return head.ljust(4096, b"\0") + b"\x7f" * (size * len(targets))


def carrying(
    library: Library, folder: Path, sections: dict[str, bytes], *flags: str, source: str = ""
) -> bytes:
    """A shared library with these sections; `library` is the fixture that compiles."""
    text = "".join(_section(folder, name, data) for name, data in sections.items())
    return library(f"{source}\nvoid here(void) {{}}\n{text}", *flags)


def _section(folder: Path, name: str, data: bytes) -> str:
    path = folder / f"{name.strip('._')}.bin"
    path.write_bytes(data)
    lines: Iterable[str] = (
        f'.section {name}, \\"a\\", @progbits',
        ".balign 8",
        f'.incbin \\"{path}\\"',
        ".previous",
    )
    return f'__asm__("{chr(92)}n{(chr(92) + "n").join(lines)}{chr(92)}n");\n'


def elf(sections: dict[str, bytes]) -> bytes:
    """A library made of these sections alone, where no compiler is needed."""
    names, table, body = b"\0", b"", b""
    named = "".join(f"{name}\0" for name in ("", *sections, ".shstrtab")).encode()
    for name, data in (*sections.items(), (".shstrtab", named)):
        at, names = len(names), names + name.encode() + b"\0"
        kind = 3 if name == ".shstrtab" else 1
        place = struct.pack("<QQQQ", 0, 0, 64 + len(body), len(data))
        table += struct.pack("<II", at, kind) + place + struct.pack("<IIQQ", 0, 0, 8, 0)
        body += data.ljust(-(-len(data) // 8) * 8, b"\0")
    count = len(sections) + 2
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQI", 3, 62, 1, 0, 0, 64 + len(body), 0)
    head += struct.pack("<HHHHHH", 64, 56, 0, 64, count, count - 1)
    return head + body + bytes(64) + table


def dynamic_elf() -> bytes:
    """A shared library of some hundred bytes: symbols, versions, dynamic section, notes."""
    names = ["", "puts", "PyInit_x", "libc.so.6", "GLIBC_2.2.5", "$ORIGIN"]
    places, strings = {}, b""
    for name in names:
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    symbols = bytes(24)
    symbols += struct.pack("<IBBHQQ", places["puts"], 0x12, 0, 0, 0, 0)
    symbols += struct.pack("<IBBHQQ", places["PyInit_x"], 0x12, 0, 1, 0x1000, 16)
    versions = struct.pack("<HHH", 0, 2, 1)
    needs = struct.pack("<HHIII", 1, 1, places["libc.so.6"], 16, 0)
    needs += struct.pack("<IHHII", 0x09691A75, 0, 2, places["GLIBC_2.2.5"], 0)
    relocations = struct.pack("<QQq", 0x1008, 1 << 32 | 6, 0)
    parts: dict[str, tuple[int, bytes, int, int, int]] = {
        # name: type, content, link, info, size of an entry
        ".text": (1, b"\x90" * 16, 0, 0, 0),
        ".dynstr": (3, strings, 0, 0, 0),
        ".dynsym": (11, symbols, 2, 1, 24),
        ".gnu.version": (0x6FFFFFFF, versions, 3, 0, 2),
        ".gnu.version_r": (0x6FFFFFFE, needs, 2, 1, 0),
        ".rela.dyn": (4, relocations, 3, 0, 24),
        ".note.gnu.build-id": (7, struct.pack("<III4s8s", 4, 8, 3, b"GNU\0", b"8bytes.."), 0, 0, 0),
        ".rodata": (1, b"libc++abi: \0", 0, 0, 0),
    }
    at, offsets = 64 + 3 * 56, {}
    for name, (_, content, *_rest) in parts.items():
        offsets[name] = at
        at += -(-len(content) // 8) * 8
    tags = [(1, places["libc.so.6"]), (5, offsets[".dynstr"]), (6, offsets[".dynsym"])]
    tags += [(10, len(strings)), (11, 24), (29, places["$ORIGIN"])]
    tags += [(0x6FFFFFF0, offsets[".gnu.version"]), (0x6FFFFFFE, offsets[".gnu.version_r"])]
    tags += [(0x6FFFFFFF, 1), (22, 0), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    parts[".dynamic"] = (6, dynamic, 2, 0, 16)
    offsets[".dynamic"], at = at, at + len(dynamic)
    table_names = "".join(f"{name}\0" for name in ("", *parts, ".shstrtab")).encode()
    parts[".shstrtab"] = (3, table_names, 0, 0, 0)
    offsets[".shstrtab"], at = at, at + -(-len(table_names) // 8) * 8
    body = b"".join(c.ljust(-(-len(c) // 8) * 8, b"\0") for _, c, *_ in parts.values())
    headers = bytes(64)
    for name, (kind, content, link, info, entry) in parts.items():
        place = offsets[name]
        headers += struct.pack("<IIQQ", table_names.index(f"{name}\0".encode()), kind, 2, place)
        headers += struct.pack("<QQIIQQ", place, len(content), link, info, 8, entry)
    count = len(parts) + 1
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 4096)
    place = offsets[".dynamic"]
    segments += struct.pack("<IIQQQQQQ", 2, 6, *(place,) * 3, *(len(dynamic),) * 2, 8)
    segments += struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQI", 3, 62, 1, 0, 64, at, 0)
    head += struct.pack("<HHHHHH", 64, 56, 3, 64, count, count - 1)
    return head + segments + body + headers
