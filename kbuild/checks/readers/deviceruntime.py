"""Libraries of device code that are linked into another one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kbuild.checks.readers.elf import UnreadableBinaryError, read_elf, sound
from kbuild.checks.readers.policies import load, matches

_CONSTANTS = ".rodata"


def static_libraries(path: Path) -> tuple[str, ...]:
    """Titles of libraries whose functions are in the file while it needs no shared one of them.

    Found by the names of functions in `data/device_libraries.json`, which symbol tables have; a
    stripped file has them only where the library prints them.
    """
    status = path.stat()
    return _static_libraries(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _static_libraries(path: Path, _size: int, _mtime: int) -> tuple[str, ...]:
    try:
        with sound("ELF"):
            return tuple(_found(path, read_elf(path).needed))
    except UnreadableBinaryError:
        return ()


def _found(path: Path, needed: tuple[str, ...]) -> Iterator[str]:
    from kbuild.checks.readers.lean import LeanElf

    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        places = [
            (
                min(section["sh_offset"], len(data)),
                min(section["sh_offset"] + section["sh_size"], len(data)),
            )
            for section in LeanElf(file).iter_sections()
            if section["sh_type"] == "SHT_STRTAB" or section.name.startswith(_CONSTANTS)
        ]
        for title, library in load("device_libraries")["libraries"].items():
            shared = any(matches(name, tuple(library["shared"])) for name in needed)
            names = [name.encode() for name in library["names"]]
            if not shared and any(data.find(n, *place) >= 0 for n in names for place in places):
                yield title
