"""Compares two variant directories: text as a diff, ELF files by section and symbol."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any, Literal

from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import read_bytes, reading, reason_of

FileDifferenceKind = Literal["changed", "missing", "added"]
_KIND_TEXTS = {
    "changed": "differs",
    "missing": "is not there any more",
    "added": "was not there before",
}


@dataclass(frozen=True)
class BinaryDifference:
    """One place where a binary differs."""

    section: str
    """An ELF section; empty in files of other kinds."""
    symbol: str = ""
    """The function or object there; empty when none is known."""
    offset: int | None = None
    """First differing byte, from the beginning of the section, or of the file without one."""
    before: str = ""
    after: str = ""
    note: str = ""
    """A remark, e.g. another size."""

    def __str__(self) -> str:
        """`.text+0x10 in f: 90 90 -> 90 cc (32 -> 48 bytes)`."""
        where = self.section or "file"
        where += f"+{self.offset:#x}" if self.offset is not None else ""
        where += f" in {self.symbol}" if self.symbol else ""
        change = f": {self.before} -> {self.after}" if self.before or self.after else ""
        return f"{where}{change}" + (f" ({self.note})" if self.note else "")

    def to_json(self) -> dict[str, Any]:
        """The place as a JSON object."""
        return dict(vars(self))


@dataclass(frozen=True)
class FileDifference:
    """One file that differs."""

    path: str
    """POSIX path relative to the variant directory."""
    kind: FileDifferenceKind
    places: tuple[BinaryDifference, ...] = ()
    """Differences of binaries."""
    lines: tuple[str, ...] = ()
    """Unified diff of texts."""

    @property
    def sentence(self) -> str:
        """`_ops.py differs`."""
        return f"{self.path} {_KIND_TEXTS[self.kind]}"

    @property
    def details(self) -> tuple[str, ...]:
        """Places and lines, as text."""
        return (*map(str, self.places), *self.lines)

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        return {
            "path": self.path,
            "kind": self.kind,
            "places": [place.to_json() for place in self.places],
            "lines": list(self.lines),
        }


SHOWN_BYTES = 8
"""Bytes that are shown of each side."""
_BLOCK_SIZE = 1 << 16
_MAX_TEXT = 60
_MIN_TEXT = 4


def first_offset(before: bytes, after: bytes) -> int | None:
    """Offset of the first byte that differs; the shorter length when one continues the other."""
    if before == after:
        return None
    shorter = min(len(before), len(after))
    for start in range(0, shorter, _BLOCK_SIZE):
        ours, theirs = before[start : start + _BLOCK_SIZE], after[start : start + _BLOCK_SIZE]
        if ours != theirs:
            pairs = enumerate(zip(ours, theirs, strict=False))
            at = next((at for at, (byte, other) in pairs if byte != other), None)
            if at is not None:
                return start + at
    return shorter


def first_difference(
    section: str, before: bytes, after: bytes, *, text: bool = False
) -> BinaryDifference:
    """The place where two contents of a section part; they must differ.

    `text` is for tables of strings: the whole string is shown, when it is one.
    """
    offset = first_offset(before, after)
    assert offset is not None  # noqa: S101 - see above
    shown = _string_at if text else _hex_at
    sizes = f"{len(before)} -> {len(after)} bytes" if len(before) != len(after) else ""
    return BinaryDifference(section, "", offset, shown(before, offset), shown(after, offset), sizes)


def _hex_at(data: bytes, offset: int) -> str:
    return data[offset : offset + SHOWN_BYTES].hex(" ") or "end"


def _string_at(data: bytes, offset: int) -> str:
    """The string that covers the offset; bytes when that is not text."""
    start = data.rfind(b"\0", 0, offset) + 1
    end = data.find(b"\0", offset)
    string = data[start : end if end >= 0 else len(data)]
    try:
        text = string.decode("utf-8")
    except UnicodeDecodeError:
        return _hex_at(data, offset)
    if len(text) < _MIN_TEXT or not text.isprintable():
        return _hex_at(data, offset)
    cut = max(0, offset - start - _MAX_TEXT // 2)
    start_mark = "…" if cut else ""
    end_mark = "…" if len(text) > cut + _MAX_TEXT else ""
    return f"`{start_mark}{text[cut : cut + _MAX_TEXT]}{end_mark}`"


MAX_SYMBOLS = 3
"""Symbols of one side only that are listed."""
_MAX_SYMBOLS_BEFORE = 16
"""Symbols before an address that are asked whether they cover it."""
_ELF_MAGIC = b"\x7fELF"
_TEXT_KINDS = ("SHT_STRTAB",)
_TEXT_FLAG = 0x20  # SHF_STRINGS
_TEXT_SECTIONS = (".rodata", ".comment")


class NotElfError(DamagedFileError):
    """One of the two is no ELF file that can be read."""


@dataclass(frozen=True)
class _ElfSection:
    name: str
    address: int
    data: bytes
    is_text: bool
    header: tuple[object, ...]


@dataclass(frozen=True)
class _ElfSymbolRange:
    start: int
    size: int
    name: str


class _ElfContents:
    """One file's sections and symbols."""

    def __init__(self, data: bytes) -> None:
        from kbuild.checks.readers.fast_elf import FastElf

        if not data.startswith(_ELF_MAGIC):
            raise NotElfError("no ELF file")
        try:
            with reading("library", "an ELF file"):
                elf = FastElf(io.BytesIO(data))
                self.header = data[: elf["e_ehsize"]]
                # By name; the second of a name gets a number.
                sections = (_read_section(part) for part in elf.iter_sections())
                sections_by_name: dict[str, _ElfSection] = {}
                for section in sections:
                    name, count = section.name, 1
                    while name in sections_by_name:
                        count += 1
                        name = f"{section.name}#{count}"
                    sections_by_name[name] = section
                self.sections = sections_by_name
                self.symbols = sorted(
                    _defined_symbols(elf), key=lambda symbol: (symbol.start, symbol.size)
                )
        except (DamagedFileError, OSError) as error:  # a seek to where no file can reach
            raise NotElfError(f"no sound ELF file: {reason_of(error)}") from error
        self._starts = [symbol.start for symbol in self.symbols]

    @property
    def names(self) -> set[str]:
        """The names of all symbols that are defined here."""
        return {symbol.name for symbol in self.symbols}

    def symbol_at(self, address: int) -> str:
        """The symbol that covers an address; empty when none does."""
        end = bisect_right(self._starts, address)
        near = reversed(self.symbols[max(0, end - _MAX_SYMBOLS_BEFORE) : end])
        fitting = (symbol.name for symbol in near if address < symbol.start + max(symbol.size, 1))
        return next(fitting, "")


def compare_elf(before: bytes, after: bytes) -> tuple[BinaryDifference, ...]:
    """Every section that differs, in the order of the file, then symbols of one side only.

    Raises:
        NotElfError: one of the two is not an ELF file.
    """
    old, new = _ElfContents(before), _ElfContents(after)
    places = [*_section_differences(old, new), *_symbol_differences(old, new)]
    if not places:  # between the sections
        places.append(first_difference("", before, after))
    return tuple(places)


def _section_differences(old: _ElfContents, new: _ElfContents) -> Iterator[BinaryDifference]:
    for name, section in old.sections.items():
        other = new.sections.get(name)
        if other is None:
            yield BinaryDifference(name, note="the section is not there any more")
        elif section.data != other.data:
            place = first_difference(section.name, section.data, other.data, text=section.is_text)
            offset = place.offset or 0
            names = (old.symbol_at(section.address + offset), new.symbol_at(other.address + offset))
            symbol = next((name for name in names if name and section.address), "")
            yield replace(place, symbol=symbol, offset=offset)
        elif section.header != other.header:
            yield BinaryDifference(name, note="the section's header differs, its content does not")
    for name in new.sections:
        if name not in old.sections:
            yield BinaryDifference(name, note="the section was not there before")


def _symbol_differences(old: _ElfContents, new: _ElfContents) -> Iterator[BinaryDifference]:
    for view, other, note in ((old, new, "only before"), (new, old, "only now")):
        names = sorted(view.names - other.names)
        for name in names[:MAX_SYMBOLS]:
            yield BinaryDifference("symbols", name, note=note)
        if len(names) > MAX_SYMBOLS:
            yield BinaryDifference("symbols", note=f"{len(names) - MAX_SYMBOLS} more {note}")


def _read_section(part: Any) -> _ElfSection:
    kind = str(part["sh_type"])
    is_text = kind in _TEXT_KINDS or bool(part["sh_flags"] & _TEXT_FLAG)
    is_text = is_text or part.name.startswith(_TEXT_SECTIONS)
    data = b"" if kind == "SHT_NOBITS" else _raw_bytes(part)
    header = (kind, part["sh_flags"], part["sh_size"], part["sh_addralign"])
    return _ElfSection(part.name, part["sh_addr"], data, is_text, header)


def _raw_bytes(part: Any) -> bytes:
    """The bytes in the file, compressed or not."""
    part.stream.seek(part["sh_offset"])
    data: bytes = part.stream.read(part["sh_size"])
    return data


def _defined_symbols(elf: Any) -> Iterator[_ElfSymbolRange]:
    for table in elf.iter_sections():
        if table["sh_type"] not in {"SHT_SYMTAB", "SHT_DYNSYM"}:
            continue
        for symbol in table.iter_symbols():
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF":
                yield _ElfSymbolRange(symbol["st_value"], symbol["st_size"], symbol.name)


CONTEXT_LINES = 1
"""Lines of text around each difference."""
MAX_DIFF_LINES = 24
"""Lines of a diff that are kept."""
_SIGNATURE_FILE = "metadata.json.sigstore"
_BYTECODE_FOLDER = "__pycache__"


def compare_folders(before: Path, after: Path) -> tuple[FileDifference, ...]:
    """The files that differ, in path order; empty when all have the same bytes.

    Bytecode that Python left, and the signature of the metadata, are no part of a build.

    Raises:
        DamagedFileError: one of them is a pipe, a socket or a device.
        OSError: a file cannot be read.
    """
    old, new = set(_relative_files(before)), set(_relative_files(after))
    differences = [FileDifference(path, "missing") for path in old - new]
    differences += [FileDifference(path, "added") for path in new - old]
    for path in old & new:
        difference = compare_files(path, _read_file(before / path), _read_file(after / path))
        differences += [difference] if difference else []
    return tuple(sorted(differences, key=lambda difference: difference.path))


def compare_files(path: str, before: bytes, after: bytes) -> FileDifference | None:
    """The difference of two files; None without one."""
    if before == after:
        return None
    try:
        return FileDifference(path, "changed", places=compare_elf(before, after))
    except NotElfError:
        pass
    try:
        texts = before.decode("utf-8"), after.decode("utf-8")
    except UnicodeDecodeError:
        return FileDifference(path, "changed", places=(first_difference("", before, after),))
    return FileDifference(path, "changed", lines=_diff_lines(*texts))


def _relative_files(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != _BYTECODE_FOLDER]
        for name in files:
            relative = Path(base, name).relative_to(root).as_posix()
            if not name.endswith(".pyc") and relative != _SIGNATURE_FILE:
                yield relative


def _read_file(path: Path) -> bytes:
    return read_bytes(path, "a file of a variant", limit=path.stat().st_size)


def _diff_lines(before: str, after: str) -> tuple[str, ...]:
    diff = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=CONTEXT_LINES)
    lines = [line for line in diff if not line.startswith(("---", "+++"))]
    more = len(lines) - MAX_DIFF_LINES
    return (*lines[:MAX_DIFF_LINES], *([f"... and {more} lines more"] if more > 0 else []))
