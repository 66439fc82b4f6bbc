"""Which store path a variant directory is a copy of, so that nothing is copied twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild.build.workspace import Workspace
from kbuild.fileset import replace_atomically
from kbuild.sourcetree import Look, look, unchanged

_FILE = "nix.json"
_FORMAT = 1


@dataclass(frozen=True)
class Kept:
    """The record of one copy."""

    output: str
    """The store path."""
    target: str
    """The variant directory."""
    sandbox: str
    """State of the sandbox when the path was made."""
    files: Mapping[str, Look]
    """The variant directory's, by path relative to it."""

    def holds(self, output: str, target: Path) -> bool:
        """True when `target` still is the copy of `output` that it was."""
        return (
            self.output == output
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
    return Kept(
        output, str(target), sandbox, {path: look(target / path) for path in _files(target)}
    )


def read_kept(space: Workspace) -> Kept | None:
    """The record of a variant; None when there is none."""
    try:
        data = json.loads((space.root / _FILE).read_text())
        if data.pop("format") != _FORMAT:
            return None
        files = {path: (int(then[0]), int(then[1])) for path, then in data.pop("files").items()}
        return Kept(files=files, **data)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
