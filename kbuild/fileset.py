"""Generated files in memory, and the one door through which they reach the disk.

Unchanged files are not rewritten, so a second generation leaves every mtime alone and ninja has
nothing to do. A target that exists and was not written by kbuild is never replaced unless forced:
what was written is remembered in a manifest with a digest of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kbuild.errors import FileConflictError

MANIFEST = ".kbuild-files.json"


def replace_atomically(target: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write `data` beside `target`, then rename: readers see the old bytes or the new ones."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hex digest of a file, which may be larger than memory.

    Raises:
        OSError: it cannot be read.
    """
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


@dataclass(frozen=True)
class WriteReport:
    """What a write did, as sorted POSIX paths relative to the target folder."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]


class FileSet:
    """Files by POSIX path relative to a target folder."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None) -> None:
        self._files: dict[str, bytes] = {}
        for path, content in (files or {}).items():
            self.add(path, content)

    def add(self, path: str, content: str | bytes) -> None:
        """Add one file.

        Raises:
            ValueError: the path is absolute, leaves the target or was added before.
        """
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != path:
            raise ValueError(f"`{path}` is not a plain relative path")
        if path in self._files:
            raise ValueError(f"`{path}` was added twice")
        self._files[path] = content.encode() if isinstance(content, str) else content

    def merge(self, other: FileSet) -> FileSet:
        """A new set with the files of both; a path in both is an error."""
        merged = FileSet(self._files)
        for path, data in other.items():
            merged.add(path, data)
        return merged

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Paths and contents in path order."""
        return iter(sorted(self._files.items()))

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __getitem__(self, path: str) -> bytes:
        return self._files[path]

    def __len__(self) -> int:
        return len(self._files)

    @property
    def digest(self) -> str:
        """SHA-256 over paths and contents in path order."""
        whole = hashlib.sha256()
        for path, data in self.items():
            whole.update(f"{path}\0{len(data)}\0".encode())
            whole.update(data)
        return whole.hexdigest()

    def write(self, root: Path, *, force: bool = False, manifest: bool = True) -> WriteReport:
        """Write what differs below `root`.

        With `manifest`, a file that kbuild did not write, or that was edited since, is a conflict
        unless `force`; nothing is written before all conflicts are known. Files of an earlier
        write that are no longer part of the set are removed when unedited.

        Raises:
            FileConflictError: with every conflicting path.
        """
        known = read_manifest(root) if manifest else {}
        self._refuse_conflicts(root, known, force=force or not manifest)
        written, unchanged = [], []
        for path, data in self.items():
            target = root / path
            if target.is_file() and target.read_bytes() == data:
                unchanged.append(path)
            else:
                replace_atomically(target, data)
                written.append(path)
        if manifest:
            remove_known(root, {path: known[path] for path in known if path not in self._files})
            write_manifest(root, {path: sha256(data) for path, data in self.items()})
        return WriteReport(tuple(written), tuple(unchanged))

    def _refuse_conflicts(self, root: Path, known: Mapping[str, str], *, force: bool) -> None:
        conflicts = [
            path
            for path, data in self.items()
            if _is_in_the_way(root / path, (sha256(data), known.get(path)), force=force)
        ]
        if conflicts:
            listed = "".join(f"\n    {path}" for path in conflicts)
            raise FileConflictError(
                f"files that kbuild did not write, or that were edited, are in the way:{listed}",
                hint="move them away, or pass --force to replace them",
            )


def _is_in_the_way(path: Path, ours: tuple[str | None, ...], *, force: bool) -> bool:
    if path.is_file():
        return not force and _digest_of(path) not in ours
    return path.exists() or (path.is_symlink() and not force)


def _digest_of(path: Path) -> str | None:
    return sha256_of_file(path) if path.is_file() else None


def read_manifest(root: Path) -> dict[str, str]:
    """Paths that kbuild wrote below `root`, with the digest that each had."""
    try:
        files = json.loads((root / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError):
        return {}
    return {str(path): str(digest) for path, digest in files.items()}


def write_manifest(root: Path, files: Mapping[str, str]) -> None:
    """Remember what was written; the manifest goes when nothing is left to remember."""
    target = root / MANIFEST
    if not files:
        target.unlink(missing_ok=True)
        return
    data = (json.dumps({"files": dict(sorted(files.items()))}, indent=1) + "\n").encode()
    if not target.is_file() or target.read_bytes() != data:
        replace_atomically(target, data)


def remove_known(root: Path, known: Mapping[str, str], *, force: bool = False) -> tuple[str, ...]:
    """Delete files that still have the digest kbuild wrote (all with `force`); emptied folders too.

    Returns the removed paths. Edited files stay.
    """
    removed = []
    for path, digest in sorted(known.items()):
        target = root / path
        if target.is_file() and (force or _digest_of(target) == digest):
            target.unlink()
            removed.append(path)
            _prune_empty(target.parent, root)
    return tuple(removed)


def _prune_empty(folder: Path, root: Path) -> None:
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
