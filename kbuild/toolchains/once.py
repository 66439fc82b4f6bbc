"""Folders below kbuild's cache that are made once and then only read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path


def once(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`, filled by `make` in a folder beside it unless it is there.

    One process makes it, others wait; it appears whole or not at all.
    """
    from filelock import FileLock

    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / f"{target.name}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as folder:
                fresh = Path(folder) / target.name
                fresh.mkdir()
                make(fresh)
                fresh.rename(target)
    return target
