"""Libraries of device code that are linked into another one."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kbuild.checks.readers.elf import UnreadableBinaryError, read_elf
from kbuild.checks.readers.policies import load, matches


def static_libraries(path: Path) -> tuple[str, ...]:
    """Titles of libraries whose functions are in the file while it needs no shared one of them.

    Found by the names in `data/device_libraries.json`, which these libraries keep in the messages
    that they print even where symbols are stripped.
    """
    try:
        needed = read_elf(path).needed
    except UnreadableBinaryError:
        return ()
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return tuple(_found(data, needed))


def _found(data: mmap, needed: tuple[str, ...]) -> Iterator[str]:
    for title, library in load("device_libraries")["libraries"].items():
        shared = any(matches(name, tuple(library["shared"])) for name in needed)
        if not shared and any(data.find(name.encode()) >= 0 for name in library["names"]):
            yield title
