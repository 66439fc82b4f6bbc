"""The object cache as a whole: whether it is enabled, its size limit, and pruning.

`kbuild.build.unit.cache` reads and writes its entries, and `kbuild.build.unit.precompiled` those of
precompiled headers, which have a limit of their own. Pruning deletes an entry's record first, so
that a unit sees a whole entry or none.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kbuild.system.quantities import parse_memory

CACHE_VARIABLE = "KBUILD_CACHE"
CACHE_SIZE_VARIABLE = "KBUILD_CACHE_SIZE"
_DEFAULT = "5G"
HEADERS_VARIABLE = "KBUILD_PRECOMPILED_HEADERS"
_DEFAULT_HEADERS = "3G"
_OFF = {"off", "0", "no", "false"}
_MIB = 1 << 20
_FORGET = 90 * 86400
"""Seconds after which hashes and peaks of units that nobody builds any more go."""
_WRITTEN = 3600
"""Seconds after which nobody is still writing a file."""
_AGES = {
    "objects/*/*/*.new": _WRITTEN,
    **{f"{folder}/*/*.new": _WRITTEN for folder in ("hashes", "units", "described")},
    **{f"{folder}/*/*": _FORGET for folder in ("hashes", "units", "described")},
    "headers/*/*.asked": _FORGET,
    "headers/*/*.lock": _FORGET,
    **{f"{folder}/*.new": _WRITTEN for folder in ("verdicts", "installed")},
    **{f"{folder}/*": _FORGET for folder in ("verdicts", "installed")},
}
"""What goes after how many seconds without being written."""
_KEPT = 0.9
"""Share of the limit that pruning leaves, so that it does not happen at every build."""
_INTERVAL_S = 600
"""A build looks at the whole cache no more often: with 30,000 entries that takes a second."""


@dataclass(frozen=True)
class CachedObject:
    """One object and its record."""

    stem: Path
    used: float
    size: int

    def remove(self) -> None:
        """Delete the record, then what belongs to it."""
        for suffix in (".d", ".o", ".err"):
            with suppress(FileNotFoundError):
                self.stem.with_name(self.stem.name + suffix).unlink()


def cache_size_limit(environ: Mapping[str, str]) -> int:
    """Bytes that objects may take: `KBUILD_CACHE_SIZE`, else 5 GB.

    Raises:
        UsageError: the variable holds no amount of memory.
    """
    return parse_memory(environ.get(CACHE_SIZE_VARIABLE) or _DEFAULT, CACHE_SIZE_VARIABLE) * _MIB


def cached_objects(cache: Path) -> Iterator[CachedObject]:
    """All complete entries; what writers are still at is left out."""
    for record in (cache / "objects").glob("*/*/*.d"):
        stem = record.with_suffix("")
        with suppress(FileNotFoundError):
            status = record.stat()
            size = sum(stem.with_suffix(suffix).stat().st_size for suffix in (".o", ".err"))
            yield CachedObject(stem, status.st_mtime, size + status.st_size)


def prune_object_cache(cache: Path, limit: int, *, dry_run: bool = False) -> int:
    """Delete what was not used for longest until `limit` bytes are kept; bytes that went.

    With `dry_run` nothing goes.
    """
    entries = sorted(cached_objects(cache), key=lambda entry: entry.used)
    size = sum(entry.size for entry in entries)
    gone = 0
    if size > limit:
        for entry in entries:
            if size - gone <= limit * _KEPT:
                break
            if not dry_run:
                entry.remove()
            gone += entry.size
    if dry_run:
        return gone
    # Delete leftovers of killed writers and what was learned of files that are long gone.
    now = time.time()
    for pattern, age in _AGES.items():
        for path in cache.glob(pattern):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now - age:
                    path.unlink()
    for path in (cache / "objects").glob("*/*"):
        with suppress(OSError):
            path.rmdir()  # only when it is empty
    return gone


def prune_precompiled_headers(cache: Path, limit: int, *, dry_run: bool = False) -> int:
    """Delete what was not used for longest until `limit` bytes are kept; bytes that went.

    With `dry_run` nothing goes.
    """
    entries = []
    for record in (cache / "headers").glob("*/*/record"):
        with suppress(FileNotFoundError):
            size = sum(file.stat().st_size for file in record.parent.iterdir())
            entries.append((record.stat().st_mtime, size, record.parent))
    kept = gone = 0
    for _, size, folder in sorted(entries, reverse=True):
        if kept + size <= limit:
            kept += size
            continue
        gone += size
        if not dry_run:
            aside = folder.with_name(f"{folder.name}.{os.getpid()}.new")
            with suppress(FileNotFoundError):  # another process removes it
                folder.rename(aside)  # compilers keep what they have open
                shutil.rmtree(aside)
    if not dry_run:
        for left in (cache / "headers").glob("*/*.new"):  # of killed processes
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - _WRITTEN:
                    shutil.rmtree(left)
    return gone


def prune_if_due(cache: Path, limit: int, headers: int = 0) -> None:
    """Prune; the objects not if that was done a short time ago: it looks at every entry.

    `headers` are the bytes that precompiled headers may take; with 0 they are left alone.
    """
    if headers:
        prune_precompiled_headers(cache, headers)
    stamp = cache / "objects" / ".pruned"
    with suppress(FileNotFoundError):
        if abs(time.time() - stamp.stat().st_mtime) < _INTERVAL_S:
            return
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    prune_object_cache(cache, limit)


def is_cache_enabled(environ: Mapping[str, str]) -> bool:
    """False when the user wants no object kept: `KBUILD_CACHE=off`."""
    return environ.get(CACHE_VARIABLE, "").lower() not in _OFF


def headers_size_limit(environ: Mapping[str, str]) -> int:
    """Bytes that precompiled headers may take: `KBUILD_PRECOMPILED_HEADERS`, else 3 GB; 0 for none.

    Raises:
        UsageError: the variable holds neither `off` nor an amount of memory.
    """
    asked = environ.get(HEADERS_VARIABLE) or _DEFAULT_HEADERS
    return 0 if asked.lower() in _OFF else parse_memory(asked, HEADERS_VARIABLE) * _MIB
