"""The digest of a variant's files, byte for byte as the `kernels` client computes it.

Counted: every regular file, following links to files; hidden files and nested `metadata.json` too.
Not counted: the top-level `metadata.json` and `metadata.json.sigstore` (they carry the digest),
links to folders, anything below a `__pycache__`, and `*.pyc`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.metadata import METADATA_FILE

_UNCOUNTED = (METADATA_FILE, f"{METADATA_FILE}.sigstore")
_CACHE = "__pycache__"


def digest_variant(root: Path, algorithm: str = "sha256") -> dict[str, Any]:
    """`{"algorithm": ..., "files": {path: standard base64 of the hash}}`, in path order.

    Raises:
        ValueError: the algorithm is neither sha256 nor sha512.
        OSError: a file cannot be read.
    """
    if algorithm not in ("sha256", "sha512"):
        raise ValueError(f"`{algorithm}` is not a digest algorithm: write sha256 or sha512")
    files = {path: _hash_of(root / path, algorithm) for path in sorted(_counted(root))}
    return {"algorithm": algorithm, "files": files}


def recorded_files(root: Path) -> frozenset[str]:
    """The paths that a variant's own digest names; none where it has no digest."""
    try:
        document = json.loads((root / METADATA_FILE).read_text("utf-8"))
        return frozenset(document["digest"]["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def differences(root: Path, digest: Mapping[str, Any]) -> tuple[str, ...]:
    """What the files and a recorded digest disagree about, one sentence each; empty when true."""
    actual = digest_variant(root, digest["algorithm"])["files"]
    recorded = digest["files"]
    missing = [f"`{path}` is gone" for path in recorded if path not in actual]
    unknown = [f"`{path}` is not in the digest" for path in actual if path not in recorded]
    changed = [
        f"`{path}` differs from the digest"
        for path in actual
        if path in recorded and recorded[path] != actual[path]
    ]
    return tuple(sorted(missing + unknown + changed))


def _counted(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != _CACHE]
        for name in files:
            path = Path(base, name)
            relative = path.relative_to(root).as_posix()
            if relative not in _UNCOUNTED and not name.endswith(".pyc") and name != _CACHE:
                yield relative


def _hash_of(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        found = hashlib.new(algorithm)
        while block := file.read(1 << 20):
            found.update(block)
    return base64.b64encode(found.digest()).decode("ascii")
