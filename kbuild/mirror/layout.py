"""What a mirror has: its paths, the manifests of its versions, and reading both.

    kernels--org--relu/refs/v1                    40 hex digits: which snapshot the version is
    kernels--org--relu/snapshots/<id>/build/...   the version's files, and `kbuild-manifest.json`
    org/relu/v1                                   a link to that snapshot, where there are links

The first two are what `huggingface_hub` calls a cache: with `KERNELS_CACHE` naming the mirror and
`HF_HUB_OFFLINE` set, the client's `get_kernel` loads from it. The third is for people, and for
`LOCAL_KERNELS`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from kbuild import __version__
from kbuild.errors import DamagedFileError, FileConflictError, HubError, UsageError
from kbuild.hub.repository import NotFoundError, RemoteFile, Repo, UploadFile
from kbuild.mirror.store import MirrorStore
from kbuild.runtime.untrusted import parse_json, reading, reason_of

MANIFEST = "kbuild-manifest.json"
_PREFIX = "kernels--"
_ID = re.compile(r"[0-9a-f]{40}")
_BRANCH = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*", flags=re.ASCII)


@dataclass(frozen=True)
class VersionPaths:
    """One version of one kernel."""

    repo: Repo
    branch: str

    @property
    def ref(self) -> str:
        """The file that says which snapshot it is."""
        return f"{refs_folder(self.repo)}/{self.branch}"

    @property
    def link(self) -> str:
        """Where people and `LOCAL_KERNELS` look for it."""
        return f"{self.repo.id}/{self.branch}"

    def snapshot(self, name: str) -> str:
        """The folder of a snapshot."""
        return f"{snapshots_folder(self.repo)}/{name}"

    def target(self, name: str) -> str:
        """What the link says: the snapshot, seen from the link's folder."""
        up = "../" * self.link.count("/")
        return f"{up}{self.snapshot(name)}"

    def __str__(self) -> str:
        return f"{self.repo}@{self.branch}"


def version_paths(repo: Repo, branch: str) -> VersionPaths:
    """The version of that name.

    Raises:
        UsageError: a mirror could not have a file of that name.
    """
    if not _BRANCH.fullmatch(branch) or ".." in branch:
        raise UsageError(f"`{branch}` cannot be a version in a mirror", hint="write e.g. v1")
    return VersionPaths(repo, branch)


def kernel_folder(repo: Repo) -> str:
    """A kernel's folder, named as `huggingface_hub` names it."""
    return f"{_PREFIX}{repo.id.replace('/', '--')}"


def refs_folder(repo: Repo) -> str:
    """The folder that says which versions there are."""
    return f"{kernel_folder(repo)}/refs"


def snapshots_folder(repo: Repo) -> str:
    """The folder with the files of all versions."""
    return f"{kernel_folder(repo)}/snapshots"


def repo_of_folder(name: str) -> Repo | None:
    """The kernel whose folder has that name; None for all other folders."""
    owner, dashes, kernel = name.removeprefix(_PREFIX).partition("--")
    if not name.startswith(_PREFIX) or not (owner and dashes and kernel):
        return None
    return Repo(f"{owner}/{kernel}")


def is_snapshot(name: str) -> bool:
    """True for the name of a snapshot."""
    return _ID.fullmatch(name) is not None


_FORMAT = 1
_HEX = re.compile(r"[0-9a-f]{64}")


class ManifestError(HubError):
    """The text is not a manifest of a mirror."""


@dataclass(frozen=True)
class Manifest:
    """What a version is made of."""

    kernel: str
    """`owner/name`."""
    branch: str
    published: datetime
    """When, in UTC."""
    files: Mapping[str, RemoteFile]
    """By POSIX path in the version's folder; each with both hashes of its content."""

    @property
    def snapshot(self) -> str:
        """The name of the version's folder: another one for another content."""
        lines = (f"{path}\0{self.files[path].sha256}\n" for path in sorted(self.files))
        text = f"{self.kernel}\0{self.branch}\n{''.join(lines)}"
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    def to_json_text(self) -> str:
        """The file's text; files in path order."""
        files = {
            path: {"size": file.size, "sha256": file.sha256, "git": file.blob}
            for path, file in sorted(self.files.items())
        }
        document = {
            "format": _FORMAT,
            "kernel": self.kernel,
            "branch": self.branch,
            "snapshot": self.snapshot,
            "published": self.published.isoformat(),
            "builder": f"kbuild {__version__}",
            "files": files,
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read a manifest; nothing that it says leads outside its folder.

    Raises:
        ManifestError: it is none, or its name of the snapshot is not that of its files.
    """
    try:
        with reading(where, "a manifest of kbuild's"):
            return _manifest_from_json(parse_json(data, where, "a manifest of kbuild's"), where)
    except DamagedFileError as error:
        message = f"`{where}` is not a manifest of kbuild: {reason_of(error)}"
        raise ManifestError(message) from error


def _manifest_from_json(document: Mapping[str, Any], where: str) -> Manifest:
    if document["format"] != _FORMAT:
        raise ManifestError(f"`{where}` has an unknown format: {document['format']}")
    files = {str(path): _file_from_json(path, entry) for path, entry in document["files"].items()}
    published = datetime.fromisoformat(document["published"])
    manifest = Manifest(str(document["kernel"]), str(document["branch"]), published, files)
    if document["snapshot"] != manifest.snapshot:
        raise ManifestError(f"`{where}` was changed: its name does not match its files")
    return manifest


def remote_file_of(entry: UploadFile) -> RemoteFile:
    """What a manifest says of a file."""
    return RemoteFile(entry.size, entry.blob, entry.sha256)


def _file_from_json(path: str, entry: Mapping[str, Any]) -> RemoteFile:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or path == MANIFEST:
        raise ValueError(f"`{path}` cannot be a file of a version")
    if not _HEX.fullmatch(entry["sha256"]):
        raise ValueError(f"`{path}` has no SHA-256")
    return RemoteFile(int(entry["size"]), str(entry["git"]), str(entry["sha256"]))


@dataclass(frozen=True)
class PublishedVersion:
    """A version as a mirror has it."""

    place: VersionPaths
    snapshot: str
    manifest: Manifest


def list_kernels(store: MirrorStore) -> tuple[Repo, ...]:
    """The kernels of a mirror, by name.

    Raises:
        HubError: the store cannot be asked.
    """
    repos = (repo_of_folder(name) for name in store.names(""))
    return tuple(repo for repo in repos if repo is not None)


def list_branches(store: MirrorStore, repo: Repo) -> tuple[str, ...]:
    """The versions of a kernel, whoever put them there.

    Raises:
        HubError: the store cannot be asked.
    """
    return tuple(sorted(store.sizes(refs_folder(repo))))


def read_snapshot_name(store: MirrorStore, place: VersionPaths) -> str | None:
    """The snapshot that a version is; None when there is no such version.

    Raises:
        HubError: the store cannot be asked.
    """
    try:
        return store.read(place.ref).decode("ascii", "replace").strip()
    except NotFoundError:
        return None


def read_manifest(store: MirrorStore, place: VersionPaths, snapshot: str) -> Manifest:
    """What is in a snapshot.

    Raises:
        NotFoundError: it has no manifest.
        ManifestError: the manifest is none, or another snapshot's.
    """
    where = f"{place.snapshot(snapshot)}/{MANIFEST}"
    manifest = parse_manifest(store.read(where), where)
    if (manifest.kernel, manifest.branch, manifest.snapshot) != (
        place.repo.id,
        place.branch,
        snapshot,
    ):
        raise ManifestError(f"`{where}` is another version's manifest")
    return manifest


def read_version(store: MirrorStore, place: VersionPaths) -> PublishedVersion | None:
    """A version; None when there is none.

    Raises:
        FileConflictError: somebody else put it there, `huggingface_hub` for instance.
        ManifestError: its manifest cannot be read.
        HubError: the store cannot be asked.
    """
    snapshot = read_snapshot_name(store, place)
    if snapshot is None:
        return None
    try:
        if is_snapshot(snapshot):
            return PublishedVersion(place, snapshot, read_manifest(store, place, snapshot))
    except NotFoundError:
        pass
    raise FileConflictError(
        f"`{place.ref}` in {store.shown} was not written by `kbuild publish`",
        hint="is it a cache that something downloads into? give the mirror a folder of its own",
    )
