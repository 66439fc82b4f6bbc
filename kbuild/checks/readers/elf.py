"""Reads what the dynamic linker sees of an ELF file.

Everything comes from `.dynsym`, `.gnu.version*`, `.dynamic` and the program headers, never from
`.symtab`: a stripped library says here exactly as much as an unstripped one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from kbuild.checks.readers.device_image import DeviceCodeError
from kbuild.checks.readers.symbols import ElfSymbol, ElfTables
from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import reading, reason_of

T = TypeVar("T")
_MAGIC = b"\x7fELF"
_EXECUTABLE, _WRITABLE = 0x1, 0x2
_DF_TEXTREL, _DF_BIND_NOW, _DF_1_NOW = 0x4, 0x8, 0x1
_TABLES = (
    ("DT_SYMTAB", "SHT_DYNSYM"),
    ("DT_VERSYM", "SHT_GNU_versym"),
    ("DT_VERNEED", "SHT_GNU_verneed"),
)
# Machine and class -> the CPU as wheels and manylinux policies name it.
_CPUS = {
    ("EM_X86_64", 64): "x86_64",
    ("EM_386", 32): "i686",
    ("EM_AARCH64", 64): "aarch64",
    ("EM_ARM", 32): "armv7l",
    ("EM_PPC64", 64): "ppc64",
    ("EM_S390", 64): "s390x",
    ("EM_RISCV", 64): "riscv64",
    ("EM_LOONGARCH", 64): "loongarch64",
}
# What the linker itself defines.
_LINKERS_OWN = (
    "_init",
    "_fini",
    "_edata",
    "_end",
    "_etext",
    "__bss_start",
    "edata",
    "end",
    "etext",
)  # by GNU ld


class UnreadableBinaryError(DamagedFileError):
    """The file is of no known kind, or its dynamic symbols cannot be seen."""


@contextmanager
def sound_binary(kind: str) -> Iterator[None]:
    """Turn every failure to understand a library into `UnreadableBinaryError`.

    Raises:
        UnreadableBinaryError: it is not a valid file of that kind.
        OSError: it cannot be read.
    """
    try:
        with reading("library", kind):
            yield
    except (DeviceCodeError, UnreadableBinaryError):
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:  # a seek to where no file can reach
            raise
        raise UnreadableBinaryError(f"not a valid {kind} file: an offset in it is wrong") from error
    except DamagedFileError as error:
        raise UnreadableBinaryError(f"not a valid {kind} file: {reason_of(error)}") from error


def cached_while_unchanged(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """Read a file once in this process, while its size and its time stay."""

    @lru_cache(maxsize=64)
    def cached(path: Path, _size: int, _mtime: int) -> T:
        return read(path)

    @wraps(read)
    def read_cached(path: Path) -> T:
        status = path.stat()
        return cached(path, status.st_size, status.st_mtime_ns)

    return read_cached


@dataclass(frozen=True)
class ElfFile:
    """A shared library as the dynamic linker reads it."""

    machine: str
    """`EM_X86_64`, `EM_AARCH64`, ..."""
    cpu: str
    """The name in wheels, `x86_64`; the machine where wheels have no name for it."""
    shared: bool
    needed: tuple[str, ...]
    search_paths: tuple[tuple[str, str], ...]
    """(`RPATH` or `RUNPATH`, value) pairs."""
    text_relocations: bool
    executable_stack: bool
    """True also when the file does not say: the linker then assumes it is needed."""
    symbols: tuple[ElfSymbol, ...]
    version_needs: tuple[tuple[str, str], ...] = ()
    """(library, version) pairs, also those that no symbol carries, as `GLIBC_ABI_DT_RELR`."""
    relro: bool = True
    """Tables that only the loader writes become read-only (PT_GNU_RELRO)."""
    bind_now: bool = True
    """Every function is found while loading, so that the whole of those tables is read-only."""
    written_code: tuple[int, ...] = ()
    """Addresses in read-only segments that the loader must write to: text relocations."""

    @property
    def undefined(self) -> Iterator[ElfSymbol]:
        """Symbols taken from elsewhere."""
        return (symbol for symbol in self.symbols if not symbol.defined)

    @property
    def exported(self) -> Iterator[ElfSymbol]:
        """Symbols offered to everybody in the process."""
        return (s for s in self.symbols if s.defined and s.name not in _LINKERS_OWN)


def is_elf(path: Path) -> bool:
    """True when the file begins like an ELF file."""
    with path.open("rb") as file:
        return file.read(4) == _MAGIC


@cached_while_unchanged
def read_elf(path: Path) -> ElfFile:
    """Read one file.

    Raises:
        UnreadableBinaryError: not an ELF file, damaged, or without section headers.
    """
    from kbuild.checks.readers.fast_elf import FastElf

    with sound_binary("ELF"), path.open("rb") as file:
        elf = FastElf(file)
        tags, tables = list(_dynamic_tags(elf)), ElfTables(elf)
        _check_dynamic_tables(tables, tags)
        textrel = any(_is_textrel(tag) for tag in tags)
        machine = str(elf["e_machine"])
        cpu = _CPUS.get((machine, elf.elfclass), machine)
        stacks = [segment["p_flags"] for segment in elf.iter_segments("PT_GNU_STACK")]
        return ElfFile(
            machine=str(elf["e_machine"]),
            cpu="ppc64le" if cpu == "ppc64" and elf.little_endian else cpu,
            shared=elf["e_type"] == "ET_DYN",
            needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            search_paths=tuple(_search_paths(tags)),
            text_relocations=textrel,
            executable_stack=(not stacks or any(flags & _EXECUTABLE for flags in stacks)),
            symbols=tuple(s for s in tables.symbols() if s.binding != "STB_LOCAL"),
            version_needs=tuple(sorted({(need[1], need[0]) for need in tables.needs().values()})),
            relro=any(True for _ in elf.iter_segments("PT_GNU_RELRO")),
            bind_now=any(_is_now(tag) for tag in tags),
            written_code=tuple(_written_code(elf, tables)) if textrel else (),
        )


def _dynamic_tags(elf: Any) -> Iterator[Any]:
    segments = list(elf.iter_segments("PT_DYNAMIC"))
    # The loader reads one of them, and the file does not tell which: nothing could be proven.
    if len(segments) > 1:
        raise UnreadableBinaryError("it has more than one dynamic section")
    for segment in segments:
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


def _is_now(tag: Any) -> bool:
    name, value = tag.entry.d_tag, tag.entry.d_val
    flags = (name == "DT_FLAGS" and value & _DF_BIND_NOW) or (
        name == "DT_FLAGS_1" and value & _DF_1_NOW
    )
    return bool(flags) or name == "DT_BIND_NOW"


def _written_code(elf: Any, tables: ElfTables) -> Iterator[int]:
    fixed = [
        range(segment["p_vaddr"], segment["p_vaddr"] + segment["p_memsz"])
        for segment in elf.iter_segments("PT_LOAD")
        if not segment["p_flags"] & _WRITABLE
    ]
    return (at for at in tables.relocated() if any(at in part for part in fixed))


def _check_dynamic_tables(tables: ElfTables, tags: list[Any]) -> None:
    """The sections that are read must be the tables that the dynamic linker is pointed to."""
    for tag_name, kind in _TABLES:
        pointed = {tag.entry.d_val for tag in tags if tag.entry.d_tag == tag_name}
        # Section headers play no part in loading, so a tool may have removed or changed them.
        if not pointed <= {section["sh_addr"] for section in tables.of_kind(kind)}:
            raise UnreadableBinaryError(
                f"its section headers are gone or do not agree with {tag_name}, "
                "so nothing can be proven"
            )
