"""Two ELF files: which sections differ, and at which symbol each difference begins."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.comparison.bytewise import first_difference
from kbuild.comparison.model import Place
from kbuild.errors import DamagedFileError
from kbuild.untrusted import reading, reason_of

NAMES = 3
"""Symbols of one side only that are listed."""
_NEAR = 16
"""Symbols before an address that are asked whether they cover it."""
_MAGIC = b"\x7fELF"
_TEXT_KINDS = ("SHT_STRTAB",)
_TEXT_FLAG = 0x20  # SHF_STRINGS
_TEXT_SECTIONS = (".rodata", ".comment")


class NotElfError(DamagedFileError):
    """One of the two is no ELF file that can be read."""


@dataclass(frozen=True)
class _Section:
    name: str
    address: int
    data: bytes
    is_text: bool
    header: tuple[object, ...]


@dataclass(frozen=True)
class _Symbol:
    start: int
    size: int
    name: str


class _View:
    """One file's sections and symbols."""

    def __init__(self, data: bytes) -> None:
        from kbuild.checks.readers.lean import LeanElf

        if not data.startswith(_MAGIC):
            raise NotElfError("no ELF file")
        try:
            with reading("library", "an ELF file"):
                elf = LeanElf(io.BytesIO(data))
                self.header = data[: elf["e_ehsize"]]
                self.sections = _named(_section(part) for part in elf.iter_sections())
                self.symbols = sorted(_symbols(elf), key=lambda symbol: (symbol.start, symbol.size))
        except (DamagedFileError, OSError) as error:  # a seek to where no file can reach
            raise NotElfError(f"no sound ELF file: {reason_of(error)}") from error
        self._starts = [symbol.start for symbol in self.symbols]

    @property
    def names(self) -> set[str]:
        """Of all symbols that are defined here."""
        return {symbol.name for symbol in self.symbols}

    def symbol_at(self, address: int) -> str:
        """The symbol that covers an address; empty when none does."""
        end = bisect_right(self._starts, address)
        near = reversed(self.symbols[max(0, end - _NEAR) : end])
        fitting = (one.name for one in near if address < one.start + max(one.size, 1))
        return next(fitting, "")


def compare_elf(before: bytes, after: bytes) -> tuple[Place, ...]:
    """Every section that differs, in the order of the file, then symbols of one side only.

    Raises:
        NotElfError: one of the two is no ELF file.
    """
    old, new = _View(before), _View(after)
    places = [*_sections(old, new), *_only(old, new)]
    if not places:  # between the sections
        places.append(first_difference("", before, after))
    return tuple(places)


def _sections(old: _View, new: _View) -> Iterator[Place]:
    for name, section in old.sections.items():
        other = new.sections.get(name)
        if other is None:
            yield Place(name, note="the section is not there any more")
        elif section.data != other.data:
            yield _content(section, other, old, new)
        elif section.header != other.header:
            yield Place(name, note="the section's header differs, its content does not")
    for name in new.sections:
        if name not in old.sections:
            yield Place(name, note="the section was not there before")


def _content(section: _Section, other: _Section, old: _View, new: _View) -> Place:
    place = first_difference(section.name, section.data, other.data, text=section.is_text)
    offset = place.offset or 0
    names = (old.symbol_at(section.address + offset), new.symbol_at(other.address + offset))
    symbol = next((name for name in names if name and section.address), "")
    return Place(section.name, symbol, offset, place.before, place.after, place.note)


def _only(old: _View, new: _View) -> Iterator[Place]:
    for view, other, words in ((old, new, "only before"), (new, old, "only now")):
        names = sorted(view.names - other.names)
        for name in names[:NAMES]:
            yield Place("symbols", name, note=words)
        if len(names) > NAMES:
            yield Place("symbols", note=f"{len(names) - NAMES} more {words}")


def _named(sections: Iterator[_Section]) -> Mapping[str, _Section]:
    """By name; the second of a name gets a number."""
    found: dict[str, _Section] = {}
    for section in sections:
        name, count = section.name, 1
        while name in found:
            count += 1
            name = f"{section.name}#{count}"
        found[name] = section
    return found


def _section(part: Any) -> _Section:
    kind = str(part["sh_type"])
    is_text = kind in _TEXT_KINDS or bool(part["sh_flags"] & _TEXT_FLAG)
    is_text = is_text or part.name.startswith(_TEXT_SECTIONS)
    data = b"" if kind == "SHT_NOBITS" else _stored(part)
    header = (kind, part["sh_flags"], part["sh_size"], part["sh_addralign"])
    return _Section(part.name, part["sh_addr"], data, is_text, header)


def _stored(part: Any) -> bytes:
    """As it is in the file, compressed or not."""
    part.stream.seek(part["sh_offset"])
    data: bytes = part.stream.read(part["sh_size"])
    return data


def _symbols(elf: Any) -> Iterator[_Symbol]:
    for table in elf.iter_sections():
        if table["sh_type"] not in {"SHT_SYMTAB", "SHT_DYNSYM"}:
            continue
        for symbol in table.iter_symbols():
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF":
                yield _Symbol(symbol["st_value"], symbol["st_size"], symbol.name)
