"""What kbuild installs once and then only reads: folders named after what they were made from.

    <root>/<kind>-<version>-<first 12 hex digits of the recipe's SHA-256>/
        entry.json     recipe, sources, size; its mtime is when the entry was last used
        members.json   every file with its SHA-256, every link with its target
        root/          the files, read-only
    <root>/.partial/   installations under way, one folder each
    <root>/.locks/     one lock per entry; locks die with their process
    <root>/.use        locked by commands that read entries, and by the one that removes some

An entry appears by a rename, whole or not at all; its files are on the disk before its name is.
One that is put together from others has hard links to the files of these, its `parts`; members.json
then has what is not as in them. Parts are not removed before what is made from them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild import frozen
from kbuild.durable import sync_tree
from kbuild.fileset import replace_atomically
from kbuild.sharing import alone, shared
from kbuild.untrusted import MOST_BYTES, read_json, reading

Make = Callable[[Path], Mapping[str, Any]]
"""Fills an empty folder; returns facts worth keeping, e.g. where the files came from."""

_DAY = 86400.0
_KIND = "an entry of the store"
_HINT = "`kbuild toolchain prune --days 0` removes it; it is installed again when needed"
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
    def version(self) -> str:
        """The recipe's."""
        with reading(self.folder, _KIND, hint=_HINT):
            return str(self.facts["recipe"]["version"])

    @property
    def root(self) -> Path:
        """The files."""
        return self.folder / _ROOT

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """`entry.json`: `recipe`, `size` in bytes, `files`, and what the maker said.

        `linked`: bytes of files that other entries have as well, which are no part of `size`.
        """
        return read_json(self.folder / _ENTRY, _KIND, hint=_HINT)

    @cached_property
    def members(self) -> Mapping[str, str]:
        """What `frozen.contents` said when it was installed: of its parts, and `members.json`."""
        path = self.folder / _MEMBERS
        own = read_json(path, _KIND, limit=8 * MOST_BYTES, hint=_HINT)
        found = {**_members_of(self.parts), **own}
        return {name: str(digest) for name, digest in found.items() if digest is not None}

    @property
    def parts(self) -> tuple[Entry, ...]:
        """The entries whose files it has as well, in the order in which they were put together."""
        return tuple(Entry(self.folder.parent / name) for name in self.facts.get("parts", ()))

    @property
    def used(self) -> float:
        """When it was last asked for, in seconds since the epoch."""
        return (self.folder / _ENTRY).stat().st_mtime

    def touch(self) -> Entry:
        """Remember that it was used now, and its parts after it."""
        with suppress(OSError):  # a store that someone else owns
            os.utime(self.folder / _ENTRY)
            for part in self.parts:
                part.touch()
        return self

    def differences(self) -> tuple[str, ...]:
        """What is not as it was installed, one sentence each; empty when nothing is."""
        gone = [part.name for part in self.parts if not (part.folder / _ENTRY).is_file()]
        if gone:
            return tuple(f"`{name}`, which says what its files were, is gone" for name in gone)
        recorded, actual = self.members, frozen.contents(self.root)
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

    def place(self, recipe: Recipe) -> Entry:
        """The entry, whether it is installed or not: only its place is sure to be known."""
        return Entry(self.root / recipe.name)

    def find(self, recipe: Recipe) -> Entry | None:
        """The entry, when it is installed."""
        entry = self.place(recipe)
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

    def in_use(self) -> AbstractContextManager[None]:
        """Nothing is removed meanwhile: for as long as a command reads entries."""
        return shared(self.root)

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

        Raises:
            InUseError: a command uses entries now; nothing was removed.
        """
        before = time.time() - days * _DAY
        kept = [entry for entry in self.entries() if entry.used > before]
        needed = {part.name for entry in kept for part in entry.parts} | {e.name for e in kept}
        unused = [entry for entry in self.entries() if entry.name not in needed]
        if not dry_run:
            with alone(self.root):
                for entry in unused:
                    self._set_aside(entry)
            self._clear_partial()  # file by file: nobody has to wait for that
        return tuple(entry.name for entry in unused)

    def _install(self, recipe: Recipe, make: Make) -> Entry:
        partial = self.root / ".partial" / recipe.name
        frozen.remove(partial)  # of an installation that was killed
        self._clear_partial(but=recipe.name)
        try:
            root = partial / _ROOT
            root.mkdir(parents=True)
            facts = make(root)
            _record(self.root, partial, recipe, facts)
            frozen.freeze(root)
            sync_tree(partial)
            partial.rename(self.place(recipe).folder)
        finally:
            frozen.remove(partial)
        return self.place(recipe)

    def _set_aside(self, entry: Entry) -> None:
        """Out of sight in one step."""
        aside = self.root / ".partial" / f"{entry.name}.removed"
        with self._lock(entry.name), self._lock(aside.name):
            frozen.remove(aside)
            aside.parent.mkdir(exist_ok=True)
            entry.folder.rename(aside)

    def _clear_partial(self, but: str = "") -> None:
        """Remove what nobody is at any more; the lock of the entry `but` is held already."""
        from filelock import Timeout

        for left in sorted(self.root.glob(".partial/*")):
            if left.name != but:
                with suppress(Timeout), self._lock(left.name, timeout=0):
                    frozen.remove(left)

    @contextmanager
    def _lock(self, name: str, timeout: float = -1) -> Iterator[None]:
        from filelock import FileLock

        folder = self.root / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{name}.lock", timeout=timeout):
            yield


def store_of(cache: Path) -> Store:
    """The store in kbuild's cache folder."""
    return Store(cache / "store")


def _members_of(parts: Iterable[Entry]) -> dict[str, str]:
    """Path -> digest; of several entries that have a path the last one's."""
    return {path: digest for part in parts for path, digest in part.members.items()}


def _record(store: Path, folder: Path, recipe: Recipe, facts: Mapping[str, Any]) -> None:
    members, (size, linked) = frozen.contents(folder / _ROOT), frozen.sizes(folder / _ROOT)
    counts = {"size": size, "linked": linked, "files": len(members)}
    entry = {"recipe": recipe.to_json(), **counts, **facts}
    others = _members_of(Entry(store / name) for name in facts.get("parts", ()))
    own: dict[str, str | None] = dict.fromkeys(others.keys() - members.keys())
    own |= {path: digest for path, digest in members.items() if others.get(path) != digest}
    replace_atomically(folder / _MEMBERS, json.dumps(own, indent=0).encode(), mode=0o444)
    replace_atomically(folder / _ENTRY, (json.dumps(entry, indent=1) + "\n").encode())
