"""Symbol tables and relocations of ELF files, and C++ names out of mangled ones.

pyelftools finds the tables; their entries are unpacked here because a kernel can have 200,000. The
system's C++ library demangles names.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kbuild.checks.readers.fast_elf import FastElf


_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")
_LONGEST = 10_000
"""Characters of a name that is read; a compiler's names of kernels may be long, others are odd."""


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """`scale(float*, int)` of `_Z5scalePfi`; the name itself where it cannot be read."""
    if not name.startswith("_Z") or len(name) > _LONGEST or (read := _demangler()) is None:
        return name
    return read(name.encode()) or name


def can_demangle() -> bool:
    """False where there is no C++ library to ask."""
    return _demangler() is not None


@lru_cache(maxsize=1)
def _demangler() -> Callable[[bytes], str] | None:
    for library in _LIBRARIES:
        try:
            loaded = ctypes.CDLL(library)
            function, free = getattr(loaded, "__cxa_demangle"), ctypes.CDLL(None).free
        except (OSError, AttributeError, TypeError):
            continue
        # As a pointer: of a `c_char_p`, ctypes keeps the text and loses the address to free.
        function.restype, free.restype, free.argtypes = ctypes.c_void_p, None, [ctypes.c_void_p]

        def read(name: bytes) -> str:
            status = ctypes.c_int()
            text = function(name, None, None, ctypes.byref(status))  # noqa: B023 - it returns
            if not text:
                return ""
            value = ctypes.string_at(text).decode("utf-8", "replace")
            free(text)  # noqa: B023
            return value

        return read
    return None


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
            if not offset:  # the null entry, and sections
                continue
            if number >= len(indices) > 0:
                raise ValueError("it has fewer versions than symbols")
            name = strings[offset : strings.index(b"\0", offset)].decode("utf-8", "replace")
            index = indices[number] & _HIDDEN_BIT if indices else 0
            version, library = versions.get(index, _NO_VERSION)
            if section:  # what is defined here is asked from nobody
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
        """The names that the symbol table defines; quicker than to look at every symbol."""
        table = next(self.of_kind(kind), None)
        if table is None:
            return set()
        strings = self._strings(table)
        # A match need not follow a NUL: linkers store a name as the end of a longer one.
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
    """The data without an incomplete entry at the end."""
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
