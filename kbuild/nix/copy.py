"""From the store to the project: variant directories that can be written to."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from kbuild.build.workspace import Workspace
from kbuild.metadata import METADATA_FILE
from kbuild.nix.kept import keep, read_kept
from kbuild.package import place, recover, settle_modes
from kbuild.untrusted import read_json

_WORSE = ("", "unsure", "relaxed", "off")
"""What a variant says of the sandbox, from nothing to the worst."""


def is_copied(space: Workspace, output: str, target: Path) -> bool:
    """True when `target` is the copy of the store path `output`, untouched since."""
    kept = read_kept(space)
    return kept is not None and kept.holds(output, target)


def copy_variant(space: Workspace, output: str, target: Path, sandbox: str) -> None:
    """Make `target` a copy of the store path `output`.

    Args:
        space: the variant's workspace.
        output: the path in the store.
        target: the variant directory.
        sandbox: what is wrong with the sandbox, for `metadata.json`; empty when nothing is.

    Raises:
        FileConflictError: `target` exists and is no variant directory.
    """
    with space.locked():
        kept = read_kept(space)
        if kept is not None and kept.output == output:
            sandbox = max(sandbox, kept.sandbox, key=_WORSE.index)  # it was made then
        recover(target)
        place(Path(output), target, partial(_amend, sandbox=sandbox))
        keep(output, target, sandbox).write(space)


def _amend(folder: Path, sandbox: str) -> None:
    """The store's files are read-only and from 1970."""
    settle_modes(folder)
    for path in folder.rglob("*"):
        os.utime(path)
    if sandbox:
        _mark(folder / METADATA_FILE, sandbox)


def _mark(metadata: Path, sandbox: str) -> None:
    document = read_json(metadata, "metadata of a variant")
    provenance = document.get("provenance")
    builder = provenance.get("kernel-builder") if isinstance(provenance, dict) else None
    if isinstance(builder, dict):
        builder["sandbox"] = sandbox
        metadata.write_text(
            json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
