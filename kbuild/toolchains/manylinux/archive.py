"""The static part of a newer libstdc++: what the policy's own libstdc++ does not have.

Red Hat's toolsets ship such a part as `libstdc++_nonshared.a`; here it is made from the host's
`libstdc++.a`. In every member, a symbol that the policy's libraries export becomes undefined, so
that there is one copy of it in a process: locale ids, `std::cout`, the empty string and type
information must not exist twice. Members that then define nothing are left out.

Formats: ar(5) as GNU writes it; System V ABI, ELF-64 object files, symbol table.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kbuild.system.errors import ToolchainError
from kbuild.system.untrusted import reading

_MAGIC = b"!<arch>\n"
_HEADER = 60
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _UNDEFINED, _GLOBAL, _TLS = 2, 0, 1 << 4, 6
_MADE_BY_THE_COMPILER = "DW.ref."


@dataclass(frozen=True)
class ArchiveMember:
    """An object file of an archive."""

    name: str
    data: bytes
    defines: tuple[str, ...]
    """Its global symbols."""


def newer_members(archive: bytes, provided: Collection[str]) -> Iterator[ArchiveMember]:
    """The members of `archive` that define what is not provided, without what is.

    Raises:
        ToolchainError: the archive is of a kind that cannot be taken apart.
        DamagedFileError: it, or an object in it, is damaged.
    """
    with reading("libstdc++.a", "the compiler's library"):
        for name, data in _members(archive):
            member = undefine_symbols(name, data, provided)
            if any(not symbol.startswith(_MADE_BY_THE_COMPILER) for symbol in member.defines):
                yield member


def undefine_symbols(name: str, data: bytes, provided: Collection[str]) -> ArchiveMember:
    """The object file with the provided symbols undefined."""
    changed, defines = bytearray(data), []
    for offset, symbol in _globals(data):
        _, info, _, section, _, _ = _SYMBOL.unpack_from(data, offset)
        if section == _UNDEFINED:
            continue
        if symbol not in provided:
            defines.append(symbol)
            continue
        (own_name,) = struct.unpack_from("<I", data, offset)
        kind = info & 0xF if info & 0xF == _TLS else 0
        _SYMBOL.pack_into(changed, offset, own_name, _GLOBAL | kind, 0, _UNDEFINED, 0, 0)
    return ArchiveMember(name, bytes(changed), tuple(defines))


def _globals(data: bytes) -> Iterator[tuple[int, str]]:
    """Offset and name of each global symbol's entry."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (start,) = struct.unpack_from("<Q", data, 0x28)
    (count,) = struct.unpack_from("<H", data, 0x3C)
    if count == 0:
        (count,) = struct.unpack_from("<Q", data, start + 0x20)  # more than 65279 sections
    sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
    for _, kind, _, _, offset, size, link, first, _, _ in sections:
        if kind == _SYMTAB:
            names = sections[link][4]
            for place in range(offset + first * _SYMBOL.size, offset + size, _SYMBOL.size):
                begin = names + struct.unpack_from("<I", data, place)[0]
                yield place, data[begin : data.index(b"\0", begin)].decode("latin-1")


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    if not archive.startswith(_MAGIC):
        raise ToolchainError("the compiler's libstdc++.a is not a plain archive")
    offset, names = len(_MAGIC), b""
    while offset + _HEADER <= len(archive):
        header = archive[offset : offset + _HEADER]
        name, size = header[:16].rstrip(), int(header[48:58])
        if size < 0:
            raise ValueError("a member has no size")
        data = archive[offset + _HEADER : offset + _HEADER + size]
        offset += _HEADER + size + size % 2
        if name == b"//":
            names = data
        elif name not in (b"/", b"/SYM64/"):
            yield _member_name(name, names), data


def _member_name(name: bytes, names: bytes) -> str:
    if name.startswith(b"/"):
        begin = int(name[1:])
        name = names[begin : names.index(b"\n", begin)]
    return name.decode().rstrip("/")


def write_archive(members: Iterable[ArchiveMember]) -> bytes:
    """An archive with an index, the same bytes for the same members."""
    listed = [member for member in members if member.defines]
    symbols = b"".join(f"{s}\0".encode("latin-1") for m in listed for s in m.defines)
    count = sum(len(member.defines) for member in listed)
    names = b"".join(f"{member.name}/\n".encode() for member in listed)
    at = len(_MAGIC) + 2 * _HEADER + _even(4 + 4 * count + len(symbols)) + _even(len(names))
    index, body, name_at = bytearray(struct.pack(">I", count)), bytearray(), 0
    for member in listed:
        index += struct.pack(">I", at + len(body)) * len(member.defines)
        body += _entry(f"/{name_at}", member.data)
        name_at += len(member.name) + 2
    return _MAGIC + _entry("/", bytes(index) + symbols) + _entry("//", names) + bytes(body)


def _entry(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def _even(size: int) -> int:
    return size + size % 2
