"""The store: folders that kbuild installs once and then only reads, named after their inputs.

    <root>/<kind>-<version>-<first 12 hex digits of the recipe's SHA-256>/
        entry.json     recipe, sources, size; its mtime is when the entry was last used
        members.json   every file with its SHA-256, every link with its target
        root/          the files, read-only
    <root>/.partial/   installations under way, one folder each
    <root>/.locks/     one lock per entry; locks die with their process
    <root>/.use        locked by commands that read entries, and by the one that removes some

An entry appears by a rename, whole or not at all. One that is put together from others has hard
links to the files of these, its `parts`; members.json then has only what differs from them.
"""

from __future__ import annotations

import fcntl
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

from kbuild.system import readonly_tree
from kbuild.system.errors import ToolchainError
from kbuild.system.files import replace_atomically, sync_tree
from kbuild.system.readonly_tree import locked_tree
from kbuild.system.untrusted import read_json, reading

MakeEntry = Callable[[Path], Mapping[str, Any]]
"""Function that fills an empty folder and returns facts for `entry.json`, e.g. where the files come
from. The fact `parts` lists the names of entries whose files it has linked."""

_DAY = 86400.0
_KIND = "an entry of the store"
_HINT = "`kbuild toolchain prune --days 0` removes it; it is installed again when needed"
_ENTRY_FILE, _MEMBERS_FILE, _FILES_FOLDER = "entry.json", "members.json", "root"


@dataclass(frozen=True)
class Recipe:
    """The inputs that determine the content of an entry."""

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
class StoreEntry:
    """One installed folder."""

    folder: Path

    @property
    def name(self) -> str:
        """`<kind>-<version>-<sha12>`."""
        return self.folder.name

    @property
    def version(self) -> str:
        """Version of the recipe."""
        with reading(self.folder, _KIND, hint=_HINT):
            return str(self.facts["recipe"]["version"])

    @property
    def root(self) -> Path:
        """Folder of the files."""
        return self.folder / _FILES_FOLDER

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """`entry.json`: `recipe`, `size` in bytes, `files`, and the facts of the maker.

        `linked`: bytes of files that other entries have as well, which are no part of `size`.
        """
        return read_json(self.folder / _ENTRY_FILE, _KIND, hint=_HINT)

    @cached_property
    def members(self) -> Mapping[str, str]:
        """The digests of its files when it was installed, those of its parts included."""
        path = self.folder / _MEMBERS_FILE
        own = read_json(path, _KIND, hint=_HINT)
        digests = {**_members_of(self.parts), **own}
        # None: a part has such a file, and this entry does not.
        return {name: str(digest) for name, digest in digests.items() if digest is not None}

    @property
    def parts(self) -> tuple[StoreEntry, ...]:
        """Entries whose files this one contains as hard links; they have no parts themselves.

        They are in the order of installation: where several have a path, the last one counts.
        """
        return tuple(StoreEntry(self.folder.parent / name) for name in self.facts.get("parts", ()))

    @property
    def used(self) -> float:
        """Time of the last use, in seconds since the epoch."""
        return (self.folder / _ENTRY_FILE).stat().st_mtime

    def touch(self) -> StoreEntry:
        """Mark the entry and its parts as used now."""
        with suppress(OSError):  # a store that someone else owns
            os.utime(self.folder / _ENTRY_FILE)
            for part in self.parts:
                part.touch()
        return self

    def differences(self) -> tuple[str, ...]:
        """The differences from what was installed, one sentence each."""
        lost = [part.name for part in self.parts if not (part.folder / _ENTRY_FILE).is_file()]
        if lost:
            return tuple(f"`{name}`, which says what its files were, is gone" for name in lost)
        recorded, actual = self.members, readonly_tree.tree_digests(self.root)
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

    def place(self, recipe: Recipe) -> StoreEntry:
        """The entry of a recipe, which may not be installed: only its path is valid then."""
        return StoreEntry(self.root / recipe.name)

    def find(self, recipe: Recipe) -> StoreEntry | None:
        """The entry, when it is installed."""
        entry = self.place(recipe)
        return entry if (entry.folder / _ENTRY_FILE).is_file() else None

    def ensure(self, recipe: Recipe, make: MakeEntry) -> StoreEntry:
        """The entry, installed by `make` if it is missing; one process installs it, others wait.

        Raises:
            BaseException: whatever `make` raises; nothing is left behind then.
        """
        entry = self.find(recipe)
        if entry is None:
            with self._lock(recipe.name):
                # Another process may have installed it while this one waited for the lock.
                entry = self.find(recipe) or self._install(recipe, make)
        return entry.touch()

    def in_use(self) -> AbstractContextManager[None]:
        """Prevent removals while a command reads entries: holds `.use` with other readers."""
        return locked_tree(self.root)

    def entries(self) -> tuple[StoreEntry, ...]:
        """Everything that is installed, in name order."""
        marks = sorted(self.root.glob(f"[!.]*/{_ENTRY_FILE}"))
        return tuple(StoreEntry(mark.parent) for mark in marks)

    def prune(self, days: float, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove entries that were not used for so long, and what killed installations left.

        Args:
            days: 0 removes everything.
            dry_run: only say what would go.

        Returns:
            The names of the removed entries.

        Raises:
            ToolchainError: a command uses entries now; nothing was removed.
        """
        unused_since = time.time() - days * _DAY
        if dry_run:
            with self.in_use():
                return tuple(entry.name for entry in self._unused(unused_since))
        try:
            # The lock comes first: until it is held, others use, install and remove entries.
            with locked_tree(self.root, exclusive=True):
                unused = self._unused(unused_since)
                for entry in unused:
                    self._set_aside(entry)
        except readonly_tree.FolderInUseError:
            raise ToolchainError(
                f"a running kbuild command uses toolchains in `{self.root}`: nothing was removed",
                hint="run the command again when it has finished",
            ) from None
        self._clear_partial()
        return tuple(entry.name for entry in unused)

    def _unused(self, since: float) -> list[StoreEntry]:
        """Entries that were not used since then (seconds since the epoch), alone or as a part."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.used > since]
        needed = {part.name for entry in kept for part in (entry, *entry.parts)}
        return [entry for entry in entries if entry.name not in needed]

    def _set_aside(self, entry: StoreEntry) -> None:
        """Move an entry to `.partial`, which is quick: deleting its files needs no lock."""
        aside = self.root / ".partial" / f"{entry.name}.removed"
        # Installations clear `.partial`, each folder under the lock of its name.
        with self._lock(entry.name), self._lock(aside.name):
            readonly_tree.remove_tree(aside)
            aside.parent.mkdir(exist_ok=True)
            entry.folder.rename(aside)

    def _install(self, recipe: Recipe, make: MakeEntry) -> StoreEntry:
        partial = self.root / ".partial" / recipe.name
        readonly_tree.remove_tree(partial)  # of an installation that was killed
        self._clear_partial(but=recipe.name)
        try:
            root = partial / _FILES_FOLDER
            root.mkdir(parents=True)
            facts = make(root)
            members, (size, linked) = (
                readonly_tree.tree_digests(root),
                readonly_tree.tree_sizes(root),
            )
            counts = {"size": size, "linked": linked, "files": len(members)}
            entry = {"recipe": recipe.to_json(), **counts, **facts}
            others = _members_of(StoreEntry(self.root / name) for name in facts.get("parts", ()))
            own: dict[str, str | None] = dict.fromkeys(others.keys() - members.keys())
            own |= {path: digest for path, digest in members.items() if others.get(path) != digest}
            replace_atomically(
                partial / _MEMBERS_FILE, json.dumps(own, indent=0).encode(), mode=0o444
            )
            replace_atomically(partial / _ENTRY_FILE, (json.dumps(entry, indent=1) + "\n").encode())
            readonly_tree.make_read_only(root)
            # On the disk before the rename: a power cut must not leave an entry with empty files.
            sync_tree(partial)
            partial.rename(self.place(recipe).folder)
        finally:
            readonly_tree.remove_tree(partial)
        return self.place(recipe)

    def _clear_partial(self, but: str = "") -> None:
        """Remove installations that nobody is working on; the lock of `but` is held already."""
        for left in sorted(self.root.glob(".partial/*")):
            if left.name != but:
                with suppress(BlockingIOError), self._lock(left.name, waits=False):
                    readonly_tree.remove_tree(left)

    @contextmanager
    def _lock(self, name: str, *, waits: bool = True) -> Iterator[None]:
        """Hold the lock of an entry.

        Raises:
            BlockingIOError: another has it, and this one is not to wait.
        """
        folder = self.root / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)


def open_store(cache: Path) -> Store:
    """The store in kbuild's cache folder."""
    return Store(cache / "store")


def _members_of(parts: Iterable[StoreEntry]) -> dict[str, str]:
    """Path -> digest; where several entries have a path, the last one counts."""
    return {path: digest for part in parts for path, digest in part.members.items()}
