"""What a repository holds, as frozen values, with git's own identifiers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def object_id(kind: str, data: bytes) -> str:
    """The name that git gives to an object."""
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest()  # noqa: S324


def now() -> str:
    """This moment as the Hub writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Entry:
    """One file of a commit."""

    oid: str
    """git's name of the blob; for a large file, of its pointer."""
    size: int
    """Bytes of the content."""
    sha256: str | None = None
    """Of the content of a large file; None for what git itself stores."""

    @classmethod
    def large(cls, sha256: str, size: int) -> Entry:
        return cls(object_id("blob", POINTER.format(sha256, size).encode()), size, sha256)

    @property
    def etag(self) -> str:
        """What identifies the content to a client; also what tells it that a file is unchanged."""
        return self.sha256 or self.oid

    def lfs(self) -> dict[str, Any] | None:
        """The part of a tree listing about a large file."""
        if self.sha256 is None:
            return None
        pointer = len(POINTER.format(self.sha256, self.size))
        return {"oid": self.sha256, "size": self.size, "pointerSize": pointer}


Files = Mapping[str, Entry]


def folder_ids(files: Files) -> dict[str, str]:
    """git's names of every folder; `""` is the root."""
    children: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for path, entry in files.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, {})[name] = ("100644", entry.oid)
        while folder:
            folder = folder.rpartition("/")[0]
            children.setdefault(folder, {})
    ids: dict[str, str] = {}
    for folder in sorted(children, key=lambda path: (path.count("/"), path != ""), reverse=True):
        ids[folder] = _tree_id(children[folder])
        if folder:
            parent, _, name = folder.rpartition("/")
            children[parent][name] = ("40000", ids[folder])
    return ids


def _tree_id(children: Mapping[str, tuple[str, str]]) -> str:
    def order(item: tuple[str, tuple[str, str]]) -> bytes:
        name, (mode, _) = item
        return (name + "/" * (mode == "40000")).encode()

    rows = sorted(children.items(), key=order)
    data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(i) for name, (mode, i) in rows)
    return object_id("tree", data)


@dataclass(frozen=True)
class Commit:
    """A state of all files, and where it came from."""

    oid: str
    parents: tuple[str, ...]
    title: str
    message: str
    author: str
    date: str
    files: Files


@dataclass(frozen=True)
class Pull:
    """A pull request; its head is the ref `refs/pr/<num>`."""

    num: int
    title: str
    author: str
    base: str
    description: str

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"
