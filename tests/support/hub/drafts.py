"""The payload of a commit, line by line, and what it makes of the files of a branch."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.hub.answers import Refused, no_entry
from tests.support.hub.attributes import with_large
from tests.support.hub.hub import Limits
from tests.support.hub.repository import Repository
from tests.support.hub.values import Commit, Entry

Operation = tuple[str, dict[str, Any]]
ATTRIBUTES = ".gitattributes"


@dataclass(frozen=True)
class Draft:
    """A commit that somebody asks for."""

    summary: str
    description: str
    parent: str | None
    operations: tuple[Operation, ...]

    @classmethod
    def parse(cls, payload: bytes, limits: Limits) -> Draft:
        """Read newline-delimited JSON, whose first line is the header.

        Raises:
            Refused: it is malformed, or too much.
        """
        if len(payload) > limits.commit_bytes:
            raise Refused(413, "The commit is too large")
        try:
            rows = [json.loads(line) for line in payload.splitlines() if line.strip()]
            (first, header), *operations = [(row["key"], row["value"]) for row in rows]
        except (ValueError, KeyError, TypeError):
            raise Refused(400, "The commit is not newline-delimited JSON") from None
        if first != "header" or not header.get("summary"):
            raise Refused(400, "A commit begins with a header that has a summary")
        if sum(key == "lfsFile" for key, _ in operations) > limits.large_files:
            raise Refused(413, f"More than {limits.large_files} large files in one commit")
        return cls(
            header["summary"],
            header.get("description", ""),
            header.get("parentCommit"),
            tuple(operations),
        )

    def apply(self, repository: Repository, head: Commit) -> dict[str, Entry]:
        """The files after the commit.

        Raises:
            Refused: an operation cannot be done; nothing is changed then.
        """
        files = dict(head.files)
        for key, value in self.operations:
            if key not in _OPERATIONS:
                raise Refused(400, f"Unknown operation: {key}")
            _OPERATIONS[key](repository, head, files, value)
        _note_large(repository, files)
        return files


def _path(value: Mapping[str, Any]) -> str:
    path = str(value.get("path", ""))
    if not path or path.startswith("/") or {"..", ".", ".git", ""} & set(path.split("/")):
        raise Refused(400, f"Invalid path: {path!r}")
    return path


def _place(files: dict[str, Entry], path: str, entry: Entry) -> None:
    """Put a file, which cannot be where a folder is, nor below a file."""
    parents = [path[:at] for at, letter in enumerate(path) if letter == "/"]
    if any(parent in files for parent in parents) or any(p.startswith(f"{path}/") for p in files):
        raise Refused(400, f"{path} is both a file and a folder")
    files[path] = entry


def _add(
    repository: Repository, head: Commit, files: dict[str, Entry], value: dict[str, Any]
) -> None:
    encoded = value.get("encoding") == "base64"
    content = str(value.get("content", ""))
    data = base64.b64decode(content) if encoded else content.encode()
    _place(files, _path(value), repository.add_blob(data))


def _add_large(
    repository: Repository, head: Commit, files: dict[str, Entry], value: dict[str, Any]
) -> None:
    stored = repository.large(str(value.get("oid")))
    size = stored.stat().st_size if stored.exists() else None
    if size is None or value.get("size", size) != size:
        raise Refused(
            400, f"LFS pointer of {value.get('path')} points to an object that is not here"
        )
    _place(files, _path(value), Entry.large(stored.name, size))


def _remove(
    repository: Repository, head: Commit, files: dict[str, Entry], value: dict[str, Any]
) -> None:
    if files.pop(_path(value), None) is None:
        raise no_entry(f"A file with this name doesn't exist: {value['path']}", head.oid)


def _remove_folder(
    repository: Repository, head: Commit, files: dict[str, Entry], value: dict[str, Any]
) -> None:
    prefix = _path({"path": str(value.get("path", "")).rstrip("/")}) + "/"
    below = [path for path in files if path.startswith(prefix)]
    if not below:
        raise no_entry(f"A folder with this name doesn't exist: {value['path']}", head.oid)
    for path in below:
        del files[path]


_OPERATIONS: dict[str, Callable[[Repository, Commit, dict[str, Entry], dict[str, Any]], None]] = {
    "file": _add,
    "lfsFile": _add_large,
    "deletedFile": _remove,
    "deletedFolder": _remove_folder,
}


def _note_large(repository: Repository, files: dict[str, Entry]) -> None:
    """Let `.gitattributes` name every large file."""
    known = files.get(ATTRIBUTES)
    text = repository.content(known).read_text("utf-8") if known else ""
    noted = with_large(text, [path for path, entry in files.items() if entry.sha256])
    if noted != text:
        files[ATTRIBUTES] = repository.add_blob(noted.encode())
