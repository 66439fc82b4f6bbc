"""A published version of a kernel, and where versions are kept: the Hub, a mirror, a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Protocol

from kbuild.errors import KbuildError, UsageError
from kbuild.hub.layout import BUILD, read_layout, size_of_variants, variant_of, variants_of
from kbuild.hub.repository import (
    HubClient,
    NotFoundError,
    Refs,
    RemoteFile,
    RemoteFiles,
    Repo,
    RetryPolicy,
)
from kbuild.metadata import METADATA_FILE, Metadata, MetadataError, parse_metadata, read_metadata
from kbuild.mirror.layout import (
    list_branches,
    read_snapshot_name,
    read_version,
    remote_file_of,
    version_paths,
)
from kbuild.mirror.store import MirrorStore
from kbuild.public_api.model import PublicApi
from kbuild.public_api.read import read_public_api
from kbuild.runtime.temporary import temporary_folder

_MAX_THREADS = 4


@dataclass(frozen=True)
class KernelVersion:
    """A version on the Hub, in a mirror, or just built."""

    kernel: str
    """`owner/name`, or the name alone of what was just built."""
    name: str
    """`v1`."""
    files: RemoteFiles
    read: Callable[[str], bytes] = field(repr=False, compare=False)
    """A file's content by path; raises `HubError`."""
    has_all: bool = True
    """False where what belongs to no variant is not known, as beside a folder of variants."""
    dates: Callable[[], Mapping[str, datetime]] = field(default=dict, repr=False, compare=False)
    """When each variant came to be as it is, as far as that is known; raises `HubError`."""

    def only(self, globs: Sequence[str]) -> KernelVersion:
        """Without the variants that match none of the globs; all of it without globs."""
        if not globs:
            return self
        return replace(
            self, files={p: f for p, f in self.files.items() if _matches_globs(p, globs)}
        )

    @property
    def variants(self) -> tuple[str, ...]:
        """Those that a client can load, by name."""
        return tuple(sorted(variants_of(self.files)))

    def size(self, *variants: str) -> int:
        """Bytes of some variants, of all without any."""
        return size_of_variants(self.files, variants or self.variants)

    @cached_property
    def metadata(self) -> Mapping[str, Metadata | None]:
        """What each variant says of itself; None where that cannot be read."""
        if not self.variants:
            return {}
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            return dict(zip(self.variants, pool.map(self._metadata, self.variants), strict=True))

    def _metadata(self, variant: str) -> Metadata | None:
        try:
            return parse_metadata(self.read(f"{BUILD}/{variant}/{METADATA_FILE}"))
        except MetadataError:
            return None


class VersionSource(Protocol):
    """Where versions of one kernel are."""

    @property
    def title(self) -> str:
        """How a person would name it, without credentials."""

    def names(self) -> tuple[str, ...]:
        """The versions, oldest first; raises `HubError`."""

    def version(self, name: str) -> KernelVersion:
        """One of them, or whatever else the source knows by that name.

        Raises:
            UsageError: there is none.
            HubError: the server does not answer.
        """


def _matches_globs(path: str, globs: Sequence[str]) -> bool:
    name = variant_of(path)
    return not name or any(fnmatchcase(name, glob) for glob in globs)


def public_api_of(version: KernelVersion) -> PublicApi | None:
    """What a version's Python package offers; None when it has no variant.

    Raises:
        SurfaceError: it cannot be read.
        HubError: the server does not answer.
    """
    variant = min(version.variants, default="")
    if not variant:
        return None
    metadata = version.metadata[variant]
    top = f"{BUILD}/{variant}/"
    with temporary_folder("version") as scratch:
        for path in version.files:
            if path.startswith(top) and path.endswith(".py"):
                file = scratch / path.removeprefix(top)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(version.read(path))
        return read_public_api(scratch, metadata.python_name if metadata else "")


def python_files(version: KernelVersion) -> dict[str, RemoteFile]:
    """The Python files of the variant that `public_api_of` reads, without what builds generate."""
    top = f"{BUILD}/{min(version.variants, default='')}/"
    files = {path.removeprefix(top): f for path, f in version.files.items() if path.startswith(top)}
    return {path: f for path, f in files.items() if path.endswith(".py") and path != "_ops.py"}


def has_same_content(file: RemoteFile | None, other: RemoteFile | None) -> bool:
    """True when two files have the same content; what only one side knows proves nothing."""
    if file is None or other is None:
        return file is other
    if file.sha256 and other.sha256:
        return file.sha256 == other.sha256
    return file.blob == other.blob


def files_of_variant(files: RemoteFiles, variant: str) -> dict[str, RemoteFile]:
    """The files of a variant, and those beside it, by path."""
    return {path: file for path, file in files.items() if variant_of(path) == variant}


_NUMBERED = re.compile(r"v(\d{1,9})")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubVersions:
    """See `VersionSource`."""

    def __init__(self, hub: HubClient, repo_id: str, retry: RetryPolicy) -> None:
        self._hub = hub
        self._retry = retry
        self._id = repo_id

    @property
    def title(self) -> str:
        """See `VersionSource.title`."""
        return f"hub:{self._id}"

    @cached_property
    def _found(self) -> tuple[Repo, Refs]:
        """The repository, and its branches."""
        repo = Repo(self._id)
        with suppress(NotFoundError):
            return repo, self._retry.call(lambda: self._hub.refs(repo))
        hint = "is the name right? A private kernel needs `hf auth login`, or `HF_TOKEN`"
        raise UsageError(f"the Hub has no kernel `{self._id}`", hint=hint)

    def names(self) -> tuple[str, ...]:
        """See `VersionSource.names`."""
        return sort_versions(name for name in self._found[1].branches if _NUMBERED.fullmatch(name))

    def version(self, name: str) -> KernelVersion:
        """See `VersionSource.version`: a branch, or a commit in full."""
        repo, refs = self._found
        commit = refs.branches.get(name) or (name if _COMMIT.fullmatch(name) else None)
        if commit is None:
            raise _unknown_version_error(self.title, name, self.names())
        try:
            tree = self._retry.call(lambda: self._hub.tree(repo, commit))
        except NotFoundError:
            raise _unknown_version_error(self.title, name, self.names()) from None
        return KernelVersion(
            self._id,
            name,
            tree,
            lambda path: self._retry.call(lambda: self._hub.read(repo, commit, path)),
            dates=lambda: self._retry.call(lambda: self._hub.dates(repo, commit)),
        )


class MirrorVersions:
    """See `VersionSource`."""

    def __init__(self, store: MirrorStore, repo: Repo, retry: RetryPolicy) -> None:
        self.store = store
        self.repo = repo
        self._retry = retry

    @property
    def title(self) -> str:
        """See `VersionSource.title`."""
        return f"{self.store.shown}/{self.repo.id}"

    def names(self) -> tuple[str, ...]:
        """See `VersionSource.names`."""
        return sort_versions(self._retry.call(lambda: list_branches(self.store, self.repo)))

    def has(self, name: str) -> bool:
        """Whether there is such a version; works where nothing can be listed."""
        place = version_paths(self.repo, name)
        return self._retry.call(lambda: read_snapshot_name(self.store, place)) is not None

    def version(self, name: str) -> KernelVersion:
        """See `VersionSource.version`."""
        place = version_paths(self.repo, name)
        kept = self._retry.call(lambda: read_version(self.store, place))
        if kept is None:
            raise _unknown_version_error(self.title, name, self.names())
        top, manifest = place.snapshot(kept.snapshot), kept.manifest
        return KernelVersion(
            self.repo.id,
            name,
            manifest.files,
            lambda path: self._retry.call(lambda: self.store.read(f"{top}/{path}")),
            dates=lambda: dict.fromkeys(variants_of(manifest.files), manifest.published),
        )


class BuiltVersions:
    """See `VersionSource`. One version: that of the variants in a folder."""

    def __init__(self, folders: Sequence[Path], project: Path | None, shown: str) -> None:
        self._folders = tuple(folders)
        self._project = project
        self.title = shown

    def names(self) -> tuple[str, ...]:
        """See `VersionSource.names`."""
        return (f"v{self._version}",)

    def version(self, name: str) -> KernelVersion:
        """See `VersionSource.version`."""
        if name not in self.names():
            raise _unknown_version_error(self.title, name, self.names())
        layout = read_layout(self._folders, self._project)
        sources = {entry.path: entry.source for entry in layout.entries}
        dates = {folder.name: _mtime(folder / METADATA_FILE) for folder in self._folders}

        def read(path: str) -> bytes:
            source = sources[path]
            return source if isinstance(source, bytes) else source.read_bytes()

        return KernelVersion(
            self._kernel,
            name,
            {entry.path: remote_file_of(entry) for entry in layout.entries},
            read,
            has_all=layout.benchmarks is not None,
            dates=lambda: dates,
        )

    @cached_property
    def _version(self) -> int:
        """Of the kernel; variants of different versions are no version together."""
        versions = {metadata.version for metadata in self._metadata}
        if len(versions) > 1:
            numbers = " and ".join(map(str, sorted(versions)))
            hint = "name one with --variant, or build all of them again"
            raise UsageError(f"{self.title} has variants of versions {numbers}", hint=hint)
        return max(versions, default=0)

    @cached_property
    def _kernel(self) -> str:
        return next((metadata.name for metadata in self._metadata), "")

    @property
    def _metadata(self) -> Iterable[Metadata]:
        for folder in self._folders:
            try:
                yield read_metadata(folder)
            except (OSError, MetadataError):
                continue


def sort_versions(names: Iterable[str]) -> tuple[str, ...]:
    """Versions by number, after whatever else there is."""

    def rank(name: str) -> tuple[int, str]:
        match = _NUMBERED.fullmatch(name)
        return (int(match[1]) if match else -1), name

    return tuple(sorted(names, key=rank))


def _mtime(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


def _unknown_version_error(title: str, name: str, names: Sequence[str]) -> KbuildError:
    known = f"there are: {', '.join(names)}" if names else "it has no versions"
    return UsageError(f"{title} has no version `{name}`", hint=known)
