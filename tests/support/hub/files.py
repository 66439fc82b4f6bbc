"""Files that are either there in full or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Put a file in place by one rename."""
    store(path, [data])


def store(path: Path, chunks: Iterable[bytes], sha256: str | None = None) -> bool:
    """Put a file in place once its last byte is here.

    Args:
        path: where to; parents are made.
        chunks: the content, as it arrives.
        sha256: what the content must hash to.

    Returns:
        False when it hashes to something else; nothing is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
        if sha256 is not None and digest.hexdigest() != sha256:
            return False
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return True


def chunks_of(*paths: Path, size: int = 1 << 20) -> Iterable[bytes]:
    """The content of files, one after the other."""
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(size):
                yield chunk
