"""Symbol tables and relocations of ELF files, and the namespaces in mangled C++ names.

pyelftools finds the tables; their entries are unpacked here because a kernel can have 200,000.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kbuild.checks.readers.fast_elf import FastElf


_HIDDEN_BIT = 0x7FFF
_RESERVED_VERSIONS = (0, 1)  # VER_NDX_LOCAL, VER_NDX_GLOBAL
_BINDINGS = {0: "STB_LOCAL", 1: "STB_GLOBAL", 2: "STB_WEAK", 10: "STB_GNU_UNIQUE"}
_KINDS = {
    0: "notype",
    1: "object",
    2: "function",
    3: "section",
    4: "file",
    6: "tls",
    10: "function",
}
_INFO = tuple(
    (_BINDINGS.get(info >> 4, f"STB_{info >> 4}"), _KINDS.get(info & 0xF, "other"))
    for info in range(256)
)
_VISIBLE = (0, 3)  # STV_DEFAULT, STV_PROTECTED
_NO_VERSION = ("", "")
_WIDE = 64


class ElfSymbol(NamedTuple):
    """One entry of a symbol table."""

    name: str
    defined: bool
    binding: str
    """`STB_LOCAL`, `STB_GLOBAL`, `STB_WEAK` or `STB_GNU_UNIQUE`."""
    version: str = ""
    """`GLIBC_2.34`; empty for unversioned symbols."""
    library: str = ""
    """The library that the version is asked from; empty for defined and unversioned symbols."""
    kind: str = "notype"
    """`function`, `object`, `tls`, `notype`, ..."""
    address: int = 0
    size: int = 0
    visible: bool = True
    """False for hidden and internal symbols."""

    @property
    def unique(self) -> bool:
        """True for STB_GNU_UNIQUE: one definition per process, whoever loads first."""
        return self.binding == "STB_GNU_UNIQUE"


@dataclass(frozen=True)
class ElfTables:
    """The tables of one file."""

    elf: FastElf

    def of_kind(self, kind: str) -> Iterator[Any]:
        """Sections of a type such as `SHT_DYNSYM`; others, as hash tables, are not parsed."""
        sections: Iterator[Any] = self.elf.iter_sections(kind)
        return sections

    def symbols(self, kind: str = "SHT_DYNSYM") -> Iterator[ElfSymbol]:
        """The named entries of the symbol table of that section type."""
        table = next(self.of_kind(kind), None)
        if table is None:
            return
        strings = self._strings(table)
        indices, versions = self._indices(kind), self.versions()
        for number, (offset, info, other, section, address, size) in enumerate(self._raw(table)):
            if not offset:
                continue
            if number >= len(indices) > 0:
                raise ValueError("it has fewer versions than symbols")
            name = strings[offset : strings.index(b"\0", offset)].decode("utf-8", "replace")
            index = indices[number] & _HIDDEN_BIT if indices else 0
            version, library = versions.get(index, _NO_VERSION)
            if section:
                library = ""
            binding, sort = _INFO[info]
            yield ElfSymbol(
                name,
                section != 0,
                binding,
                version,
                library,
                sort,
                address,
                size,
                other & 3 in _VISIBLE,
            )

    def defined(self, names: Collection[str], kind: str = "SHT_SYMTAB") -> set[str]:
        """Which of the names the symbol table defines; quicker than to look at every symbol."""
        table = next(self.of_kind(kind), None)
        if table is None:
            return set()
        strings = self._strings(table)
        at = {place: name for name in names for place in _places(strings, name.encode() + b"\0")}
        return {
            at[offset]
            for offset, _, _, section, _, _ in (self._raw(table) if at else ())
            if section and offset in at
        }

    def has_prefix(self, prefix: str) -> bool:
        """True when a name of the symbol table begins so."""
        table = next(self.of_kind("SHT_SYMTAB"), None)
        strings = self._strings(table) if table else b""
        return b"\0" + prefix.encode() in strings

    def _strings(self, table: Any) -> bytes:
        data: bytes = self.elf.content(self.elf.get_section(table["sh_link"]))
        return data

    def _raw(self, table: Any) -> Iterator[tuple[int, int, int, int, int, int]]:
        """(name, info, other, section, value, size) of each entry."""
        data, order = self.elf.content(table), self._order
        if self.elf.elfclass == _WIDE:
            yield from struct.iter_unpack(f"{order}IBBHQQ", _whole_entries(data, 24))
            return
        for name, value, size, info, other, section in struct.iter_unpack(
            f"{order}IIIBBH", _whole_entries(data, 16)
        ):
            yield name, info, other, section, value, size

    @property
    def _order(self) -> str:
        return "<" if self.elf.little_endian else ">"

    def _indices(self, kind: str) -> tuple[int, ...]:
        section = next(self.of_kind("SHT_GNU_versym"), None) if kind == "SHT_DYNSYM" else None
        data = b"" if section is None else _whole_entries(self.elf.content(section), 2)
        return struct.unpack(f"{self._order}{len(data) // 2}H", data)

    def versions(self) -> dict[int, tuple[str, str]]:
        """Version index -> (version, library that it is asked from)."""
        versions = self.needs() | self._definitions()
        return {index: name for index, name in versions.items() if index not in _RESERVED_VERSIONS}

    def needs(self) -> dict[int, tuple[str, str]]:
        """Version index -> (version, library), of what is asked from others."""
        return {
            version["vna_other"] & _HIDDEN_BIT: (version.name, need.name)
            for section in self.of_kind("SHT_GNU_verneed")
            for need, version in self.elf.versions(section)
        }

    def _definitions(self) -> dict[int, tuple[str, str]]:
        versions: dict[int, tuple[str, str]] = {}
        for section in self.of_kind("SHT_GNU_verdef"):
            for definition, name in self.elf.versions(section):  # its own, then its parents'
                versions.setdefault(definition["vd_ndx"] & _HIDDEN_BIT, (name.name, ""))
        return versions

    def relocated(self) -> Iterator[int]:
        """Addresses that the dynamic linker writes to when it loads the file."""
        wide = self.elf.elfclass == _WIDE
        for kind, entry in (("SHT_RELA", 24 if wide else 12), ("SHT_REL", 16 if wide else 8)):
            layout = f"{self._order}{'Q' if wide else 'I'}{entry - (8 if wide else 4)}x"
            for section in self.of_kind(kind):
                if section["sh_flags"] & 0x2:  # SHF_ALLOC
                    data = _whole_entries(self.elf.content(section), entry)
                    yield from (offset for (offset,) in struct.iter_unpack(layout, data))


def _places(data: bytes, part: bytes) -> Iterator[int]:
    at = data.find(part)
    while at >= 0:
        yield at
        at = data.find(part, at + 1)


def _whole_entries(data: bytes, entry: int) -> bytes:
    """Without a broken entry at the end."""
    return data[: len(data) - len(data) % entry]


# What a special name is of (`TV`: virtual table, `Th`: thunk, `Z`: local to a function), then `N`
# and the qualifiers of a nested name.
_ENTITY = re.compile(
    r"_Z(?:T[VTISHW]|Th[n\d]+_|Tv[n\d]+_[n\d]+_|GV|GR)?Z?(?:N[rVK]*[RO]?)?(?P<begin>.*)"
)
_STANDARD = re.compile(r"_Z(?:T[VTISHW]|GV|GR)?Z?(?:N[rVK]*[RO]?)?(?:St|S[absiod])")
_LENGTH = re.compile(r"(\d+)")


def scope_part(name: str) -> str | None:
    """The mangled name from its outermost scope on (`2at4_ops...`); None for C names."""
    match = _ENTITY.fullmatch(name)
    return match["begin"] if match else None


def is_std_symbol(name: str) -> bool:
    """True for what lives in `std`."""
    return _STANDARD.match(name) is not None


def outermost_namespace(name: str) -> str:
    """The outermost scope: `c10`, `std`; empty for C and for types that are in none.

    A function in no namespace is its own scope.
    """
    if is_std_symbol(name):
        return "std"
    begin = scope_part(name) or ""
    length = _LENGTH.match(begin)
    return begin[length.end() :][: int(length[1])] if length else ""
