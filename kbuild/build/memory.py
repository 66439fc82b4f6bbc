"""How much memory this build may take: what is free, and what control groups allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_SHARE = 0.9
_FALLBACK = 4096
"""MiB, where nothing tells."""
_KIB, _MIB = 1 << 10, 1 << 20


def memory_budget(root: Path = Path("/")) -> int:
    """MiB for all compilers of a run: the least of what is free and what is allowed, times 0.9.

    `root` is where `proc` and `sys` are found.
    """
    rooms = [room for room in (available(root), *control_group_rooms(root)) if room is not None]
    return max(1, int(min(rooms, default=_half_of_all()) * _SHARE))


def _half_of_all() -> int:
    """MiB, where the kernel does not tell what is free: macOS."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB // 2
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def available(root: Path = Path("/")) -> int | None:
    """MiB that the kernel can give without swapping."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // _KIB
    return None


def control_group_rooms(root: Path = Path("/")) -> Iterator[int]:
    """MiB left in each control group that this process is in and that has a limit."""
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        places: tuple[Path, ...]
        if number == "0" and not controllers:
            places = (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified")
            files = ("memory.max", "memory.current", "inactive_file ")
        elif "memory" in controllers.split(","):
            places = (root / "sys/fs/cgroup/memory",)
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        else:
            continue
        for place in places:
            yield from _rooms(place, path, files)


def _rooms(mount: Path, path: str, files: tuple[str, str, str]) -> Iterator[int]:
    """Rooms of a group and of all groups around it; a container may see only the outermost."""
    limit_file, usage_file, reclaimable = files
    group = PurePosixPath(path.lstrip("/"))
    for name in (group, *group.parents):
        folder = mount / name
        limit = _number(folder / limit_file)
        if limit is not None:
            used = (_number(folder / usage_file) or 0) - _cache_of(folder, reclaimable)
            yield max(0, limit - used) // _MIB


def _cache_of(folder: Path, name: str) -> int:
    """Bytes of the group's page cache that the kernel takes back when memory is short."""
    for line in _lines(folder / "memory.stat"):
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _number(path: Path) -> int | None:
    """The file's number; None for `max`, and for a group or a file that is not there."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
