"""Compares two variant directories: text as a diff, other files by their first different bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from kbuild.system.untrusted import read_bytes

FileDifferenceKind = Literal["changed", "missing", "added"]
_KIND_TEXTS = {
    "changed": "differs",
    "missing": "is not there any more",
    "added": "was not there before",
}
_CONTEXT_LINES = 1
"""Lines of text around each difference."""
_MAX_DIFF_LINES = 24
"""Lines of a diff that are kept."""
_SHOWN_BYTES = 8
"""Bytes that are shown of each side."""
_SIGNATURE_FILE = "metadata.json.sigstore"
_BYTECODE_FOLDER = "__pycache__"


@dataclass(frozen=True)
class FileDifference:
    """One file that differs."""

    path: str
    kind: FileDifferenceKind
    lines: tuple[str, ...] = ()
    """Unified diff of texts; of other files the offset of the first byte that differs."""

    @property
    def sentence(self) -> str:
        """`_ops.py differs`."""
        return f"{self.path} {_KIND_TEXTS[self.kind]}"

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        return {"path": self.path, "kind": self.kind, "lines": list(self.lines)}


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
        contents = _read_file(before / path), _read_file(after / path)
        if contents[0] != contents[1]:
            differences.append(FileDifference(path, "changed", _difference_lines(*contents)))
    return tuple(sorted(differences, key=lambda difference: difference.path))


def _relative_files(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != _BYTECODE_FOLDER]
        for name in files:
            relative = Path(base, name).relative_to(root).as_posix()
            if not name.endswith(".pyc") and relative != _SIGNATURE_FILE:
                yield relative


def _read_file(path: Path) -> bytes:
    return read_bytes(path, "a file of a variant", limit=path.stat().st_size)


def _difference_lines(before: bytes, after: bytes) -> tuple[str, ...]:
    try:
        texts = before.decode("utf-8"), after.decode("utf-8")
    except UnicodeDecodeError:
        return (_first_difference(before, after),)
    old, new = (text.splitlines() for text in texts)
    diff = unified_diff(old, new, lineterm="", n=_CONTEXT_LINES)
    lines = [line for line in diff if not line.startswith(("---", "+++"))]
    more = len(lines) - _MAX_DIFF_LINES
    return (*lines[:_MAX_DIFF_LINES], *([f"... and {more} lines more"] if more > 0 else []))


def _first_difference(before: bytes, after: bytes) -> str:
    """`byte 0x10: 90 90 -> 90 cc (32 -> 48 bytes)`; the two must differ."""
    pairs = enumerate(zip_longest(before, after))
    offset = next(at for at, (byte, other) in pairs if byte != other)
    shown = (data[offset : offset + _SHOWN_BYTES].hex(" ") or "end" for data in (before, after))
    sizes = f" ({len(before)} -> {len(after)} bytes)" if len(before) != len(after) else ""
    return f"byte {offset:#x}: {' -> '.join(shown)}{sizes}"
