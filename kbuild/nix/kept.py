"""Which store path a variant directory is a copy of, so that nothing is copied twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.build.workspace import Workspace
from kbuild.fileset import replace_atomically
from kbuild.filestate import Look, identify, looks, unchanged
from kbuild.installation import package_digest
from kbuild.untrusted import remembered

_FILE = "nix.json"
_FORMAT = 2


@dataclass(frozen=True)
class Kept:
    """The record of one copy."""

    output: str
    """The store path."""
    target: str
    """The variant directory."""
    sandbox: str
    """State of the sandbox when the path was made."""
    kbuild: str
    """Digest of the kbuild that made the copy."""
    files: Mapping[str, Look]
    """The variant directory's, by path relative to it."""

    def holds(self, output: str, target: Path) -> bool:
        """True when `target` still is the copy of `output` that it was."""
        return (
            self.output == output
            and self.kbuild == package_digest()
            and self.target == str(target)
            and unchanged(target, self.files)
            and set(_files(target)) == set(self.files)
        )

    def write(self, space: Workspace) -> None:
        """Save the record."""
        data = {"format": _FORMAT, **vars(self)}
        replace_atomically(space.root / _FILE, json.dumps(data, indent=1).encode())


def keep(output: str, target: Path, sandbox: str) -> Kept:
    """The record of a copy that was just made."""
    files = {path: identify(target / path) for path in _files(target)}
    return Kept(output, str(target), sandbox, package_digest(), files)


def read_kept(space: Workspace) -> Kept | None:
    """The record of a variant; None when there is none."""
    return remembered(space.root / _FILE, _understood)


def _understood(document: Mapping[str, Any]) -> Kept | None:
    if document["format"] != _FORMAT:
        return None
    files = looks(document["files"])
    names = ("output", "target", "sandbox", "kbuild")
    output, target, sandbox, kbuild = (str(document[name]) for name in names)
    return Kept(output, target, sandbox, kbuild, files)


def _files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
