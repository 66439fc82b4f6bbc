"""Where versions are kept: the Hub, a mirror, a folder of built variants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

from kbuild.errors import KbuildError, UsageError
from kbuild.hub.layout import lay_out
from kbuild.hub.patience import Patience
from kbuild.hub.remote import Hub, Missing
from kbuild.hub.values import Refs, Repo
from kbuild.metadata import METADATA_FILE, Metadata, MetadataError, read_metadata
from kbuild.mirror.manifest import file_of
from kbuild.mirror.places import place_of
from kbuild.mirror.read import branches_in, kept_at, snapshot_at
from kbuild.mirror.store import Store
from kbuild.versions.model import Version

_NUMBERED = re.compile(r"v(\d{1,9})")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class OnHub:
    """See `Source`."""

    def __init__(self, hub: Hub, repo_id: str, patience: Patience) -> None:
        self._hub = hub
        self._patience = patience
        self._id = repo_id

    @property
    def title(self) -> str:
        """See `Source.title`."""
        return f"hub:{self._id}"

    @cached_property
    def _found(self) -> tuple[Repo, Refs]:
        """The first kernels were pushed as models."""
        for kind in ("kernel", "model"):
            repo = Repo(self._id, "kernel" if kind == "kernel" else "model")
            try:
                return repo, self._patience.persist(lambda repo=repo: self._hub.refs(repo))  # type: ignore[misc]
            except Missing:
                continue
        hint = "is the name right? A private kernel needs `hf auth login`, or `HF_TOKEN`"
        raise UsageError(f"the Hub shows no kernel `{self._id}`", hint=hint)

    def names(self) -> tuple[str, ...]:
        """See `Source.names`."""
        return in_order(name for name in self._found[1].branches if _NUMBERED.fullmatch(name))

    def version(self, name: str) -> Version:
        """See `Source.version`: a branch, or a commit in full."""
        repo, refs = self._found
        commit = refs.branches.get(name) or (name if _COMMIT.fullmatch(name) else None)
        if commit is None:
            raise _unknown(self.title, name, self.names())
        try:
            tree = self._patience.persist(lambda: self._hub.tree(repo, commit))
        except Missing:
            raise _unknown(self.title, name, self.names()) from None
        return Version(
            self._id,
            name,
            tree,
            lambda path: self._patience.persist(lambda: self._hub.read(repo, commit, path)),
            dates=lambda: self._patience.persist(lambda: self._hub.dates(repo, commit)),
        )


class InMirror:
    """See `Source`."""

    def __init__(self, store: Store, repo: Repo, patience: Patience) -> None:
        self.store = store
        self.repo = repo
        self._patience = patience

    @property
    def title(self) -> str:
        """See `Source.title`."""
        return f"{self.store.shown}/{self.repo.id}"

    def names(self) -> tuple[str, ...]:
        """See `Source.names`."""
        return in_order(self._patience.persist(lambda: branches_in(self.store, self.repo)))

    def has(self, name: str) -> bool:
        """Whether there is such a version; works where nothing can be listed."""
        place = place_of(self.repo, name)
        return self._patience.persist(lambda: snapshot_at(self.store, place)) is not None

    def version(self, name: str) -> Version:
        """See `Source.version`."""
        place = place_of(self.repo, name)
        kept = self._patience.persist(lambda: kept_at(self.store, place))
        if kept is None:
            raise _unknown(self.title, name, self.names())
        top, made = place.snapshot(kept.snapshot), kept.manifest
        version = Version(
            self.repo.id,
            name,
            made.files,
            lambda path: self._patience.persist(lambda: self.store.read(f"{top}/{path}")),
        )
        return _dated(version, dict.fromkeys(version.variants, made.published))


class Built:
    """See `Source`. One version: that of the variants in a folder."""

    def __init__(self, folders: Sequence[Path], project: Path | None, shown: str) -> None:
        self._folders = tuple(folders)
        self._project = project
        self.title = shown

    def names(self) -> tuple[str, ...]:
        """See `Source.names`."""
        return (f"v{self._version}",)

    def version(self, name: str) -> Version:
        """See `Source.version`."""
        if name not in self.names():
            raise _unknown(self.title, name, self.names())
        layout = lay_out(self._folders, self._project)
        sources = {entry.path: entry.source for entry in layout.entries}
        files = {entry.path: file_of(entry) for entry in layout.entries}
        has_all = layout.benchmarks is not None
        version = Version(self._kernel, name, files, lambda path: _bytes(sources[path]), has_all)
        times = {folder.name: (folder / METADATA_FILE) for folder in self._folders}
        return _dated(version, {name: _mtime(path) for name, path in times.items()})

    @cached_property
    def _version(self) -> int:
        """Of the kernel; variants of different versions are no version together."""
        found = {made.version for made in self._metadata}
        if len(found) > 1:
            numbers = " and ".join(map(str, sorted(found)))
            hint = "name one with --variant, or build all of them again"
            raise UsageError(f"{self.title} has variants of versions {numbers}", hint=hint)
        return max(found, default=0)

    @cached_property
    def _kernel(self) -> str:
        return next((made.name for made in self._metadata), "")

    @property
    def _metadata(self) -> Iterable[Metadata]:
        for folder in self._folders:
            try:
                yield read_metadata(folder)
            except (OSError, MetadataError):
                continue


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Versions by number, after whatever else there is."""

    def rank(name: str) -> tuple[int, str]:
        match = _NUMBERED.fullmatch(name)
        return (int(match[1]) if match else -1), name

    return tuple(sorted(names, key=rank))


def _dated(version: Version, dates: Mapping[str, datetime]) -> Version:
    from dataclasses import replace

    return replace(version, dates=lambda: dates)


def _bytes(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def _mtime(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


def _unknown(title: str, name: str, names: Sequence[str]) -> KbuildError:
    known = f"there are: {', '.join(names)}" if names else "it has no versions"
    return UsageError(f"{title} has no version `{name}`", hint=known)
