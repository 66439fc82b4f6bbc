"""Lists the files that decided what this process did: loaded ones, and folders that were searched.

Used by the other programs here, in the same process, when they have their answer. While none of the
files changes, the same question gets the same answer. What the caller asked about is among them
when it was loaded; the caller knows it better and leaves it out.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Iterator
from pathlib import Path

MAPS = Path("/proc/self/maps")


def surroundings(*read: str) -> list[str]:
    """Absolute paths, sorted, some of which may not exist; empty where that cannot be known.

    Only Linux tells a process which libraries it has mapped. `read` are further files that had a
    say.
    """
    try:
        mapped = set(mapped_files())
    except OSError:
        return []
    paths = {*mapped, *modules(), *places(), *read}
    return sorted(path for path in paths if Path(path).is_absolute())


def mapped_files() -> Iterator[str]:
    """Programs and libraries, and whatever else is mapped from a file."""
    for line in MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        path = line.split(None, 5)[5:]
        if path and Path(path[0]).is_file():
            yield path[0]


def modules() -> Iterator[str]:
    """The files of imported modules, and the folders of packages without one."""
    for module in list(sys.modules.values()):
        inside = getattr(module, "__dict__", {})
        if isinstance(inside.get("__file__"), str):
            yield inside["__file__"]
        elif "__path__" in inside:
            yield from (str(path) for path in inside["__path__"])


def places() -> Iterator[str]:
    """The files that set up the interpreter and the loader, and the folders of modules."""
    yield from (sys.executable, str(Path(sys.executable).resolve()))
    yield from (str(Path(sys.prefix, "pyvenv.cfg")), site.getusersitepackages())
    yield from ("/etc/ld.so.cache", "/etc/ld.so.preload")
    for place in sys.path:
        yield place
        yield from (str(path) for path in Path(place).glob("*.pth"))
