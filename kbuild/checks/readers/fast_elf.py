"""pyelftools without the hash tables, which are slow, and with sizes checked against the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

_NO_BITS = "SHT_NOBITS"
_VERSION_SIZE = 16
"""Bytes of the smallest entry of a version table."""


class FastElf(ELFFile):
    """An ELF file whose hash tables are sections like any other.

    Raises:
        ELFError: where a header names something outside of the file.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.size = stream.seek(0, os.SEEK_END)
        super().__init__(stream)

    def num_sections(self) -> int:
        """The number of section headers."""
        count = int(super().num_sections())
        self._refuse_headers("section", count, self.structs.Elf_Shdr.sizeof())
        return count

    def num_segments(self) -> int:
        """The number of program headers."""
        count = int(super().num_segments())
        self._refuse_headers("program", count, self.structs.Elf_Phdr.sizeof())
        return count

    def content(self, section: Any) -> bytes:
        """The bytes of a section that is stored as it is."""
        if section["sh_type"] == _NO_BITS or section.compressed:
            raise ELFError(f"the section `{section.name}` is not stored as it is")
        data: bytes = section.data()
        return data

    def versions(self, section: Any) -> Iterator[tuple[Any, Any]]:
        """The entries of a version table, each with one of its versions."""
        rest = section["sh_size"] // _VERSION_SIZE
        if section["sh_info"] > rest:
            raise ELFError(f"`{section.name}` has no room for its {section['sh_info']} entries")
        for entry, versions in section.iter_versions():
            for version in versions:
                if rest == 0:
                    raise ELFError(f"`{section.name}` has no room for its versions")
                rest -= 1
                yield entry, version

    def _refuse_headers(self, what: str, count: int, size: int) -> None:
        """Refuse smaller headers: a file of any length could claim as many as it likes."""
        letter = what[0]
        stated = self[f"e_{letter}hentsize"]
        if count and stated < size:
            raise ELFError(f"its {what} headers have {stated} bytes each instead of {size}")
        self._refuse_outside(f"{what} headers", self[f"e_{letter}hoff"], count * stated)

    def _refuse_outside(self, what: str, offset: int, size: int) -> None:
        if offset + size > self.size:
            raise ELFError(f"its {what} reach beyond the file's end")

    def _make_section(self, section_header: Any) -> Any:
        if section_header["sh_type"] != _NO_BITS:
            self._refuse_outside("sections", section_header["sh_offset"], section_header["sh_size"])
        return super()._make_section(section_header)

    def _make_gnu_hash_section(self, section_header: Any, name: str) -> Any:
        return Section(section_header, name, self)

    def _make_elf_hash_section(self, section_header: Any, name: str) -> Any:
        return Section(section_header, name, self)
