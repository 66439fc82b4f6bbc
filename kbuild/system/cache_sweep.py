"""The size of kbuild's cache: its limits, and the removal of what nobody used for long."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kbuild.system.atomic import DRAFT_SUFFIX, files_below, remove_path
from kbuild.system.cache import (
    HEADERS_LIMIT,
    KINDS,
    LOCKS_FOLDER,
    OBJECTS_LIMIT,
    Cache,
    Entry,
    Kind,
)
from kbuild.system.quantities import parse_memory

CACHE_VARIABLE = "KBUILD_CACHE"
CACHE_SIZE_VARIABLE = "KBUILD_CACHE_SIZE"
_DEFAULT = "5G"
HEADERS_VARIABLE = "KBUILD_PRECOMPILED_HEADERS"
_DEFAULT_HEADERS = "3G"
_OFF = {"off", "0", "no", "false"}
_MIB = 1 << 20
_UNUSED_S = 90 * 86400
"""Seconds after which an entry without a limit on its bytes is removed, if nobody used it."""
_WRITTEN_S = 3600
"""Seconds after which nobody is still writing a file."""
_KEPT_SHARE = 0.9
"""Share of a limit that is kept, so that entries are not removed at every build."""
_INTERVAL_S = 600
"""A build looks at the whole cache no more often: with 30,000 entries that takes a second."""


def is_cache_enabled(environ: Mapping[str, str]) -> bool:
    """False when the user wants no object kept: `KBUILD_CACHE=off`."""
    return environ.get(CACHE_VARIABLE, "").lower() not in _OFF


def cache_size_limit(environ: Mapping[str, str]) -> int:
    """Bytes that objects and images may take: `KBUILD_CACHE_SIZE`, else 5 GB.

    Raises:
        UsageError: the variable holds no amount of memory.
    """
    return parse_memory(environ.get(CACHE_SIZE_VARIABLE) or _DEFAULT, CACHE_SIZE_VARIABLE) * _MIB


def headers_size_limit(environ: Mapping[str, str]) -> int:
    """Bytes that precompiled headers may take: `KBUILD_PRECOMPILED_HEADERS`, else 3 GB; 0 for none.

    Raises:
        UsageError: the variable holds neither `off` nor an amount of memory.
    """
    text = environ.get(HEADERS_VARIABLE) or _DEFAULT_HEADERS
    return 0 if text.lower() in _OFF else parse_memory(text, HEADERS_VARIABLE) * _MIB


def sweep(folder: Path, limits: Mapping[str, int], *, dry_run: bool = False) -> dict[str, int]:
    """Remove entries that are too old, too many, or too large together.

    Args:
        folder: kbuild's cache folder.
        limits: bytes by name of a limit.
        dry_run: remove nothing.

    Returns:
        Bytes of what was removed, by name of a limit.
    """
    removed = dict.fromkeys((OBJECTS_LIMIT, HEADERS_LIMIT, ""), 0)
    entries: dict[str, list[Entry]] = {name: [] for name in removed}
    unused: list[tuple[str, Entry]] = []
    for kind in KINDS:
        own = sorted(Cache(folder, kind).entries(), key=lambda entry: -entry.used)
        entries[kind.limit] += own
        if not kind.limit:
            unused += [("", entry) for entry in _unused(kind, own)]
    for name, limit in limits.items():
        unused += [(name, entry) for entry in _excess(entries[name], limit)]
    for name, entry in unused:
        removed[name] += entry.size
        if not dry_run:
            remove_path(entry.path)
    if not dry_run:
        _remove_leftovers(folder)
    return removed


def _unused(kind: Kind, entries: list[Entry]) -> list[Entry]:
    """Entries that are too old or too many, of those in the order of their last use."""
    oldest = time.time() - _UNUSED_S
    count = kind.max_entries or len(entries)
    return [entry for at, entry in enumerate(entries) if at >= count or entry.used < oldest]


def _excess(entries: list[Entry], limit: int) -> list[Entry]:
    """Entries to remove when all of them are larger than the limit: the last used ones stay."""
    if sum(entry.size for entry in entries) <= limit:
        return []
    excess: list[Entry] = []
    kept = 0
    for entry in sorted(entries, key=lambda entry: -entry.used):
        if excess or kept + entry.size > limit * _KEPT_SHARE:
            excess.append(entry)
        else:
            kept += entry.size
    return excess


def _remove_leftovers(folder: Path) -> None:
    """Remove drafts of killed writers, locks that nobody used for long, and empty folders."""
    now = time.time()
    for path, status in files_below(f"{folder}/{LOCKS_FOLDER}"):
        if status.st_mtime < now - _UNUSED_S:
            remove_path(path)
    for kind in KINDS:
        for base, folders, names in os.walk(folder / kind.name, topdown=False):
            for name in (*folders, *names):
                place = Path(base, name)
                with suppress(OSError):  # another process removes it, or a folder is not empty
                    # A fresh draft may still be written, and a fresh folder is about to get an
                    # entry.
                    if place.lstat().st_mtime >= now - _WRITTEN_S:
                        continue
                    if name.endswith(DRAFT_SUFFIX):
                        remove_path(str(place))
                    elif name in folders:
                        place.rmdir()


def sweep_if_due(folder: Path, limits: Mapping[str, int]) -> None:
    """Sweep, unless that was done a short time ago."""
    stamp = folder / LOCKS_FOLDER / "swept"
    try:
        # `abs`, because a clock that was set back must not prevent sweeps until then.
        if stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < _INTERVAL_S:
            return
        stamp.parent.mkdir(exist_ok=True)
        # Before the sweep, so that builds that start meanwhile do not sweep as well.
        stamp.touch()
    except OSError:  # there is no cache, or it cannot be written
        return
    sweep(folder, limits)
