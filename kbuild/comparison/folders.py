"""File by file: the same bytes, or what differs in words that fit the kind of file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from kbuild.comparison.bytewise import first_difference
from kbuild.comparison.elf import NotElfError, compare_elf
from kbuild.comparison.model import Difference, Place
from kbuild.untrusted import read_bytes

CONTEXT = 1
"""Lines of text around each difference."""
LINES = 24
"""Lines of a diff that are kept."""
_SIGNATURE = "metadata.json.sigstore"
_CACHE = "__pycache__"


def compare_folders(before: Path, after: Path) -> tuple[Difference, ...]:
    """What differs, in path order; empty when all files have the same bytes.

    Bytecode that Python left, and the signature of the metadata, are no part of a build.

    Raises:
        DamagedFileError: one of them is a pipe, a socket or a device.
        OSError: a file cannot be read.
    """
    old, new = set(_files(before)), set(_files(after))
    found = [Difference(path, "missing") for path in old - new]
    found += [Difference(path, "added") for path in new - old]
    for path in old & new:
        difference = compare_files(path, _read(before / path), _read(after / path))
        found += [difference] if difference else []
    return tuple(sorted(found, key=lambda difference: difference.path))


def compare_files(path: str, before: bytes, after: bytes) -> Difference | None:
    """How two files differ; None when they do not."""
    if before == after:
        return None
    try:
        return Difference(path, "changed", places=compare_elf(before, after))
    except NotElfError:
        pass
    try:
        texts = before.decode("utf-8"), after.decode("utf-8")
    except UnicodeDecodeError:
        return Difference(path, "changed", places=(_anywhere(before, after),))
    return Difference(path, "changed", lines=_diff(*texts))


def _files(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != _CACHE]
        for name in files:
            relative = Path(base, name).relative_to(root).as_posix()
            if not name.endswith(".pyc") and relative != _SIGNATURE:
                yield relative


def _read(path: Path) -> bytes:
    return read_bytes(path, "a file of a variant", limit=path.stat().st_size)


def _anywhere(before: bytes, after: bytes) -> Place:
    return first_difference("", before, after)


def _diff(before: str, after: str) -> tuple[str, ...]:
    made = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=CONTEXT)
    lines = [line for line in made if not line.startswith(("---", "+++"))]
    more = len(lines) - LINES
    return (*lines[:LINES], *([f"... and {more} lines more"] if more > 0 else []))
