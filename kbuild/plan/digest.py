"""The digest of a variant's files, byte for byte as the `kernels` client computes it.

Counted: every regular file, following links to files; hidden files and nested `metadata.json` too.
Not counted: the top-level `metadata.json` and `metadata.json.sigstore` (they carry the digest),
links to folders, anything below a `__pycache__`, and `*.pyc`.

What is not counted can be changed without a trace, and some of it is run by `import`. So whoever
relies on a digest asks `unaccounted` as well, and refuses a folder that has more than is counted.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kbuild.plan.metadata import METADATA_FILE
from kbuild.system.errors import CheckError
from kbuild.system.untrusted import read_cache_file, special_file_kind

_UNCOUNTED = (METADATA_FILE, f"{METADATA_FILE}.sigstore")
_CACHE = "__pycache__"


_BYTECODE = (".pyc", ".pyo")
_COPY = "copy what it leads to: links out of the folder and to folders do not survive an upload"


class Unaccounted(NamedTuple):
    """An entry below a variant that its digest does not name, or cannot vouch for."""

    path: str
    what: str
    """Description of the problem, which follows the path: `is bytecode`."""
    hint: str

    def __str__(self) -> str:
        return f"`{self.path}` {self.what}"


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
    files = read_cache_file(
        root / METADATA_FILE, lambda document: frozenset({**document["digest"]["files"]})
    )
    return files or frozenset()


def differences(root: Path, digest: Mapping[str, Any]) -> tuple[str, ...]:
    """Differences between the files and a recorded digest, one sentence each; empty if none."""
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


def unaccounted(root: Path) -> tuple[Unaccounted, ...]:
    """Entries below a variant that its digest does not vouch for, in path order.

    That is bytecode and whatever else lies in a `__pycache__`, links to folders, links that lead
    out of the variant or nowhere, pipes, sockets and devices, folders without anything in them, and
    folders that cannot be looked into. No file's content is read.
    """
    closed: list[str] = []
    strays: list[Unaccounted] = []
    for base, folders, files in os.walk(root, onerror=lambda error: closed.append(error.filename)):
        for name in (*folders, *files):
            path = Path(base, name)
            stray = _unaccounted_entry(path, path.relative_to(root).as_posix(), root)
            strays += [stray] if stray else []
        if not folders and not files and Path(base) != root:
            where = Path(base).relative_to(root).as_posix()
            strays.append(
                Unaccounted(where, "is an empty folder", "delete it: uploads omit empty folders")
            )
    for name in closed:
        where = Path(name).relative_to(root).as_posix()
        strays.append(Unaccounted(where, "is a folder that cannot be read", "change its mode"))
    return tuple(sorted(strays))


def validate_accounted(root: Path) -> None:
    """Refuse a variant that holds what its digest does not vouch for.

    Raises:
        CheckError: it does, with every path.
    """
    strays = unaccounted(root)
    if strays:
        listed = "".join(f"\n    {stray}" for stray in strays)
        raise CheckError(
            f"`{root.name}` holds what its digest does not vouch for:{listed}",
            [{"where": stray.path, "what": stray.what, "hint": stray.hint} for stray in strays],
            hint=strays[0].hint,
        )


def _unaccounted_entry(path: Path, where: str, root: Path) -> Unaccounted | None:
    """Describe the problem of one entry; folders are searched, but not links to folders."""
    what, hint = "", "delete it: variants are plain files"
    is_link = path.is_symlink()
    if is_link and not path.exists():
        what = "is a link that leads nowhere"
    elif is_link and not path.resolve().is_relative_to(root.resolve()):
        what, hint = "is a link that leads out of the folder", _COPY
    elif path.is_dir():
        what, hint = "is a link to a folder" if is_link else "", _COPY
    elif not path.is_file():
        what = f"is {special_file_kind(path.stat().st_mode)}"
    elif not _is_counted(where) and where not in _UNCOUNTED:
        what = "is bytecode" if where.endswith(_BYTECODE) else f"lies in a `{_CACHE}`"
        hint = f"delete `{_CACHE}`; the client never downloads it"
    return Unaccounted(where, what, hint) if what else None


def _counted(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        # In place, so that `os.walk` does not descend into them.
        folders[:] = [name for name in folders if name != _CACHE]
        for name in files:
            path = Path(base, name)
            relative = path.relative_to(root).as_posix()
            if _is_counted(relative) and path.is_file():
                yield relative


def _is_counted(path: str) -> bool:
    """True if the digest counts a file of that path."""
    return path not in _UNCOUNTED and not path.endswith(".pyc") and _CACHE not in path.split("/")


def _hash_of(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        content_hash = hashlib.new(algorithm)
        while block := file.read(1 << 20):
            content_hash.update(block)
    return base64.b64encode(content_hash.digest()).decode("ascii")
