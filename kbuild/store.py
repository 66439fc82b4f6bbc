"""What kbuild installs once and then only reads: folders named after what they were made from.

    <root>/<kind>-<version>-<first 12 hex digits of the recipe's SHA-256>/
        entry.json     recipe, sources, size; its mtime is when the entry was last used
        members.json   every file with its SHA-256, every link with its target
        root/          the files, read-only
    <root>/.partial/   installations under way, one folder each
    <root>/.locks/     one lock per entry; locks die with their process

An entry appears by a rename, whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.fileset import replace_atomically

Make = Callable[[Path], Mapping[str, Any]]
"""Fills an empty folder; returns facts worth keeping, e.g. where the files came from."""

_DAY = 86400.0
_BLOCK = 1 << 20
_ENTRY, _MEMBERS, _ROOT = "entry.json", "members.json", "root"


@dataclass(frozen=True)
class Recipe:
    """What determines the content of an entry."""

    kind: str
    version: str
    inputs: Mapping[str, Any]
    """JSON: everything that the files depend on."""

    @property
    def name(self) -> str:
        """`<kind>-<version>-<sha12>`."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"{self.kind}-{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def to_json(self) -> dict[str, Any]:
        """The recipe as a JSON object."""
        return {"kind": self.kind, "version": self.version, "inputs": dict(self.inputs)}


@dataclass(frozen=True)
class Entry:
    """One installed folder."""

    folder: Path

    @property
    def name(self) -> str:
        """`<kind>-<version>-<sha12>`."""
        return self.folder.name

    @property
    def root(self) -> Path:
        """The files."""
        return self.folder / _ROOT

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """`entry.json`: `recipe`, `size` in bytes, `files`, and what the maker said."""
        facts: dict[str, Any] = json.loads((self.folder / _ENTRY).read_text())
        return facts

    @cached_property
    def members(self) -> Mapping[str, str]:
        """POSIX path -> `sha256:<hex>` of a file (`:x` when it runs), `link:<target>` of a link."""
        members: dict[str, str] = json.loads((self.folder / _MEMBERS).read_text())
        return members

    @property
    def used(self) -> float:
        """When it was last asked for, in seconds since the epoch."""
        return (self.folder / _ENTRY).stat().st_mtime

    def touch(self) -> Entry:
        """Remember that it was used now."""
        with suppress(OSError):  # a store that someone else owns
            os.utime(self.folder / _ENTRY)
        return self

    def differences(self) -> tuple[str, ...]:
        """What is not as it was installed, one sentence each; empty when nothing is."""
        recorded, actual = self.members, dict(_members(self.root))
        missing = [f"`{path}` is gone" for path in recorded if path not in actual]
        unknown = [f"`{path}` was added" for path in actual if path not in recorded]
        changed = [
            f"`{path}` was changed"
            for path in actual
            if path in recorded and actual[path] != recorded[path]
        ]
        return tuple(sorted(missing + unknown + changed))

    def to_json(self) -> dict[str, Any]:
        """Name, place, size in bytes, and when it was last used (ISO 8601, UTC)."""
        used = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.used))
        return {"name": self.name, "path": str(self.root), **self.facts, "used": used}


class Store:
    """The entries below one folder, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, recipe: Recipe) -> Entry | None:
        """The entry, when it is installed."""
        entry = Entry(self.root / recipe.name)
        return entry if (entry.folder / _ENTRY).is_file() else None

    def ensure(self, recipe: Recipe, make: Make) -> Entry:
        """The entry, made by `make` when it is not there; one process makes it, others wait.

        Raises:
            BaseException: whatever `make` raises; nothing is left behind then.
        """
        found = self.find(recipe)
        if found is None:
            with self._lock(recipe.name):
                found = self.find(recipe) or self._install(recipe, make)
        return found.touch()

    def entries(self) -> tuple[Entry, ...]:
        """Everything that is installed, in name order."""
        marks = sorted(self.root.glob(f"[!.]*/{_ENTRY}"))
        return tuple(Entry(mark.parent) for mark in marks)

    def prune(self, days: float, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove entries that were not used for so long, and what killed installations left.

        Args:
            days: 0 removes everything.
            dry_run: only say what would go.

        Returns:
            The names of the removed entries.
        """
        before = time.time() - days * _DAY
        unused = [entry for entry in self.entries() if entry.used <= before]
        if not dry_run:
            for entry in unused:
                self._remove(entry)
            self._clear_partial()
        return tuple(entry.name for entry in unused)

    def _install(self, recipe: Recipe, make: Make) -> Entry:
        partial = self.root / ".partial" / recipe.name
        _remove_tree(partial)  # of an installation that was killed
        try:
            root = partial / _ROOT
            root.mkdir(parents=True)
            facts = make(root)
            _record(partial, recipe, facts)
            _freeze(root)
            partial.rename(self.root / recipe.name)
        finally:
            _remove_tree(partial)
        return Entry(self.root / recipe.name)

    def _remove(self, entry: Entry) -> None:
        """Out of sight in one step, then file by file."""
        with self._lock(entry.name):
            aside = self.root / ".partial" / f"{entry.name}.removed"
            _remove_tree(aside)
            aside.parent.mkdir(exist_ok=True)
            entry.folder.rename(aside)
            _remove_tree(aside)

    def _clear_partial(self) -> None:
        from filelock import Timeout

        for left in sorted(self.root.glob(".partial/*")):
            with suppress(Timeout), self._lock(left.name.removesuffix(".removed"), timeout=0):
                _remove_tree(left)

    @contextmanager
    def _lock(self, name: str, timeout: float = -1) -> Iterator[None]:
        from filelock import FileLock

        folder = self.root / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{name}.lock", timeout=timeout):
            yield


def _record(folder: Path, recipe: Recipe, facts: Mapping[str, Any]) -> None:
    members = dict(sorted(_members(folder / _ROOT)))
    size = sum(path.lstat().st_size for path in _walk(folder / _ROOT))
    entry = {"recipe": recipe.to_json(), "size": size, "files": len(members), **facts}
    replace_atomically(folder / _MEMBERS, json.dumps(members, indent=0).encode(), mode=0o444)
    replace_atomically(folder / _ENTRY, (json.dumps(entry, indent=1) + "\n").encode())


def _walk(root: Path) -> Iterator[Path]:
    """Files, and links of any kind."""
    for base, folders, files in os.walk(root):
        for name in (*files, *folders):
            path = Path(base, name)
            if name in files or path.is_symlink():
                yield path


def _members(root: Path) -> Iterator[tuple[str, str]]:
    for path in _walk(root):
        yield path.relative_to(root).as_posix(), _mark(path)


def _mark(path: Path) -> str:
    if path.is_symlink():
        return f"link:{path.readlink().as_posix()}"
    with path.open("rb") as file:
        found = hashlib.sha256()
        while block := file.read(_BLOCK):
            found.update(block)
    runs = ":x" if path.stat().st_mode & 0o100 else ""
    return f"sha256:{found.hexdigest()}{runs}"


def _freeze(root: Path) -> None:
    """Take the write permission from every file and folder, the top one last."""
    for base, _, files in os.walk(root, topdown=False):
        for path in (*(Path(base, name) for name in files), Path(base)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)


def _remove_tree(folder: Path) -> None:
    for base, folders, _ in os.walk(folder):
        for path in (Path(base), *(Path(base, name) for name in folders)):
            if not path.is_symlink():
                path.chmod(0o755)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
