"""pyelftools without the tables that nobody here reads.

It unpacks a file's hash tables every time its sections are walked: a second for 200 000 symbols.
"""

from __future__ import annotations

from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section


class LeanElf(ELFFile):
    """An ELF file whose hash tables are sections like any other."""

    def _make_gnu_hash_section(self, section_header: Any, name: str) -> Any:
        return Section(section_header, name, self)

    def _make_elf_hash_section(self, section_header: Any, name: str) -> Any:
        return Section(section_header, name, self)
