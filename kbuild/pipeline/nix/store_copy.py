"""Copies variants from the Nix store into the project, and keeps which path each is a copy of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kbuild.pipeline.package import install_variant, normalize_modes, restore_old_variant
from kbuild.plan.metadata import METADATA_FILE
from kbuild.system.cache import Cache
from kbuild.system.cache_kinds import NIX_COPY
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import FileState, all_unchanged, identify, parse_file_states
from kbuild.system.untrusted import read_json
from kbuild.system.workspace import Workspace


@dataclass(frozen=True)
class StoreCopyRecord:
    """The record of one copy."""

    output: str
    """The store path."""
    target: str
    """The variant directory."""
    sandbox: str
    """State of the sandbox when the path was made."""
    kbuild: str
    """Digest of the kbuild that made the copy."""
    files: Mapping[str, FileState]
    """The variant directory's, by path relative to it."""

    def holds(self, output: str, target: Path) -> bool:
        """True when `target` still is the copy of `output` that it was."""
        return (
            self.output == output
            and self.kbuild == package_digest()
            and self.target == str(target)
            and all_unchanged(target, self.files)
            and set(_files(target)) == set(self.files)
        )

    def write(self, space: Workspace) -> None:
        """Keep the record in the variant's workspace."""
        Cache(space.root, NIX_COPY).put_json("", vars(self))


def record_copy(output: str, target: Path, sandbox: str) -> StoreCopyRecord:
    """The record of a copy that was just made."""
    files = {path: identify(target / path) for path in _files(target)}
    return StoreCopyRecord(output, str(target), sandbox, package_digest(), files)


def read_copy_record(space: Workspace) -> StoreCopyRecord | None:
    """The record of a variant; None when there is none."""
    return Cache(space.root, NIX_COPY).get_json("", _parse_copy_record)


def _parse_copy_record(document: Mapping[str, Any]) -> StoreCopyRecord:
    files = parse_file_states(document["files"])
    names = ("output", "target", "sandbox", "kbuild")
    output, target, sandbox, kbuild = (str(document[name]) for name in names)
    return StoreCopyRecord(output, target, sandbox, kbuild, files)


def _files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


_SANDBOX_STATES = ("", "unsure", "relaxed", "off")
"""What a variant says of the sandbox, from nothing to the worst."""


def is_current_copy(space: Workspace, output: str, target: Path) -> bool:
    """True when `target` is the copy of the store path `output`, untouched since."""
    kept = read_copy_record(space)
    return kept is not None and kept.holds(output, target)


def copy_variant(space: Workspace, output: str, target: Path, sandbox: str) -> None:
    """Make `target` a copy of the store path `output`.

    Args:
        space: the variant's workspace.
        output: the path in the store.
        target: the variant directory.
        sandbox: what is wrong with the sandbox, for `metadata.json`; empty when nothing is.

    Raises:
        FileConflictError: `target` exists and is not a variant directory.
    """
    with space.locked():
        kept = read_copy_record(space)
        if kept is not None and kept.output == output:
            sandbox = max(sandbox, kept.sandbox, key=_SANDBOX_STATES.index)  # it was made then
        restore_old_variant(target)
        install_variant(Path(output), target, partial(_make_writable, sandbox=sandbox))
        record_copy(output, target, sandbox).write(space)


def _make_writable(folder: Path, sandbox: str) -> None:
    """The store's files are read-only and from 1970."""
    normalize_modes(folder)
    for path in folder.rglob("*"):
        os.utime(path)
    if sandbox:
        metadata = folder / METADATA_FILE
        document = read_json(metadata, "metadata of a variant")
        provenance = document.get("provenance")
        builder = provenance.get("kernel-builder") if isinstance(provenance, dict) else None
        if isinstance(builder, dict):
            builder["sandbox"] = sandbox
            metadata.write_text(
                json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
