"""`kbuild-manifest.json`: the files of one version in a mirror, and their hashes."""

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
from kbuild.errors import DamagedFileError, HubError
from kbuild.hub.entry import Entry
from kbuild.hub.values import RemoteFile
from kbuild.mirror.places import MANIFEST
from kbuild.untrusted import parse_json, reading, reason_of

_FORMAT = 1
_HEX = re.compile(r"[0-9a-f]{64}")


class ManifestError(HubError):
    """The text is no manifest of a mirror."""


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
            return _manifest(parse_json(data, where, "a manifest of kbuild's"), where)
    except DamagedFileError as error:
        words = f"`{where}` is no manifest of kbuild's: {reason_of(error)}"
        raise ManifestError(words) from error


def _manifest(document: Mapping[str, Any], where: str) -> Manifest:
    if document["format"] != _FORMAT:
        raise ManifestError(f"`{where}` is of another format: {document['format']}")
    files = {str(path): _file(path, told) for path, told in document["files"].items()}
    published = datetime.fromisoformat(document["published"])
    manifest = Manifest(str(document["kernel"]), str(document["branch"]), published, files)
    if document["snapshot"] != manifest.snapshot:
        raise ManifestError(f"`{where}` was changed: its files do not give the name that it has")
    return manifest


def file_of(entry: Entry) -> RemoteFile:
    """What a manifest says of a file."""
    return RemoteFile(entry.size, entry.blob, entry.sha256)


def _file(path: str, told: Mapping[str, Any]) -> RemoteFile:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or path == MANIFEST:
        raise ValueError(f"`{path}` cannot be a file of a version")
    if not _HEX.fullmatch(told["sha256"]):
        raise ValueError(f"`{path}` has no SHA-256")
    return RemoteFile(int(told["size"]), str(told["git"]), str(told["sha256"]))
