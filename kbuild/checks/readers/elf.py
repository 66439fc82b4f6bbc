"""What the dynamic linker sees of an ELF file.

Everything comes from `.dynsym`, `.gnu.version*`, `.dynamic` and the program headers, never from
`.symtab`: a stripped library says here exactly as much as an unstripped one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_MAGIC = b"\x7fELF"
_EXECUTABLE = 0x1
_DF_TEXTREL = 0x4
_HIDDEN_BIT = 0x7FFF
_RESERVED_VERSIONS = (0, 1)  # VER_NDX_LOCAL, VER_NDX_GLOBAL
_TABLES = (
    ("DT_SYMTAB", "SHT_DYNSYM"),
    ("DT_VERSYM", "SHT_GNU_versym"),
    ("DT_VERNEED", "SHT_GNU_verneed"),
)


class UnreadableBinaryError(ValueError):
    """The file is no ELF file, or one whose dynamic symbols cannot be seen."""


@dataclass(frozen=True)
class DynamicSymbol:
    """One entry of the dynamic symbol table."""

    name: str
    defined: bool
    binding: str
    """`STB_GLOBAL`, `STB_WEAK` or `STB_LOOS` (which is STB_GNU_UNIQUE on Linux)."""
    version: str = ""
    """`GLIBC_2.34`; empty for unversioned symbols."""
    library: str = ""
    """The library that the version is asked from; empty for defined and unversioned symbols."""

    @property
    def unique(self) -> bool:
        """True for STB_GNU_UNIQUE: one definition per process, whoever loads first."""
        return self.binding in ("STB_LOOS", "STB_GNU_UNIQUE")


@dataclass(frozen=True)
class ElfFile:
    """A shared library as the dynamic linker reads it."""

    machine: str
    """`EM_X86_64`, `EM_AARCH64`, ..."""
    shared: bool
    needed: tuple[str, ...]
    search_paths: tuple[tuple[str, str], ...]
    """(`RPATH` or `RUNPATH`, value) pairs."""
    text_relocations: bool
    executable_stack: bool
    """True also when the file does not say: the linker then assumes it is needed."""
    symbols: tuple[DynamicSymbol, ...]
    version_needs: tuple[tuple[str, str], ...] = ()
    """(library, version) pairs, also those that no symbol carries, as `GLIBC_ABI_DT_RELR`."""

    @property
    def undefined(self) -> Iterator[DynamicSymbol]:
        """Symbols taken from elsewhere."""
        return (symbol for symbol in self.symbols if not symbol.defined)

    @property
    def exported(self) -> Iterator[DynamicSymbol]:
        """Symbols offered to everybody in the process."""
        return (symbol for symbol in self.symbols if symbol.defined)


def is_elf(path: Path) -> bool:
    """True when the file begins like an ELF file."""
    with path.open("rb") as file:
        return file.read(4) == _MAGIC


def read_elf(path: Path) -> ElfFile:
    """Read one file; a second look at an unchanged file costs nothing.

    Raises:
        UnreadableBinaryError: not an ELF file, damaged, or without section headers.
    """
    status = path.stat()
    return _read(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, _size: int, _mtime: int) -> ElfFile:
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return _view(ELFFile(file))
    except UnreadableBinaryError:
        raise
    except Exception as error:
        raise UnreadableBinaryError(f"not a sound ELF file: {error}") from error


def _view(elf: Any) -> ElfFile:
    tags = list(_dynamic_tags(elf))
    _refuse_disagreement(elf, tags)
    return ElfFile(
        machine=str(elf["e_machine"]),
        shared=elf["e_type"] == "ET_DYN",
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        search_paths=tuple(_search_paths(tags)),
        text_relocations=any(_is_textrel(tag) for tag in tags),
        executable_stack=_executable_stack(elf),
        symbols=tuple(_symbols(elf)),
        version_needs=tuple(sorted({(need[1], need[0]) for need in _needs(elf).values()})),
    )


def _dynamic_tags(elf: Any) -> Iterator[Any]:
    for segment in elf.iter_segments("PT_DYNAMIC"):
        yield from segment.iter_tags()


def _search_paths(tags: list[Any]) -> Iterator[tuple[str, str]]:
    for tag in tags:
        if tag.entry.d_tag == "DT_RPATH":
            yield "RPATH", tag.rpath
        if tag.entry.d_tag == "DT_RUNPATH":
            yield "RUNPATH", tag.runpath


def _is_textrel(tag: Any) -> bool:
    flags = tag.entry.d_tag == "DT_FLAGS" and bool(tag.entry.d_val & _DF_TEXTREL)
    return flags or tag.entry.d_tag == "DT_TEXTREL"


def _executable_stack(elf: Any) -> bool:
    stacks = [segment["p_flags"] for segment in elf.iter_segments("PT_GNU_STACK")]
    return not stacks or any(flags & _EXECUTABLE for flags in stacks)


def _refuse_disagreement(elf: Any, tags: list[Any]) -> None:
    """The sections that are read must be the tables that the dynamic linker is pointed to."""
    for tag_name, kind in _TABLES:
        pointed = {tag.entry.d_val for tag in tags if tag.entry.d_tag == tag_name}
        if not pointed <= {section["sh_addr"] for section in _sections(elf, kind)}:
            raise UnreadableBinaryError(
                f"its section headers are gone or do not agree with {tag_name}, "
                "so nothing can be proven"
            )


def _symbols(elf: Any) -> Iterator[DynamicSymbol]:
    table = next(_sections(elf, "SHT_DYNSYM"), None)
    if table is None:
        return
    versions = _versions(elf)
    indices = next(_sections(elf, "SHT_GNU_versym"), None)
    for number, symbol in enumerate(table.iter_symbols()):
        if not symbol.name:
            continue
        index = _version_index(indices, number)
        yield _symbol(symbol, *versions.get(index, ("", "")))


def _symbol(symbol: Any, version: str, library: str) -> DynamicSymbol:
    defined = symbol["st_shndx"] != "SHN_UNDEF"
    binding = str(symbol["st_info"]["bind"])
    return DynamicSymbol(symbol.name, defined, binding, version, "" if defined else library)


def _version_index(section: Any, number: int) -> int:
    if section is None:
        return 0
    index = section.get_symbol(number)["ndx"]
    return int(index) & _HIDDEN_BIT if isinstance(index, int) else 0


def _versions(elf: Any) -> dict[int, tuple[str, str]]:
    """Version index -> (version, library it is asked from)."""
    found = _needs(elf) | _definitions(elf)
    return {index: name for index, name in found.items() if index not in _RESERVED_VERSIONS}


def _needs(elf: Any) -> dict[int, tuple[str, str]]:
    return {
        version["vna_other"] & _HIDDEN_BIT: (version.name, need.name)
        for section in _sections(elf, "SHT_GNU_verneed")
        for need, versions in section.iter_versions()
        for version in versions
    }


def _definitions(elf: Any) -> dict[int, tuple[str, str]]:
    return {
        definition["vd_ndx"] & _HIDDEN_BIT: (next(iter(names)).name, "")
        for section in _sections(elf, "SHT_GNU_verdef")
        for definition, names in section.iter_versions()
    }


def _sections(elf: Any, kind: str) -> Iterator[Any]:
    return (section for section in elf.iter_sections() if section["sh_type"] == kind)
