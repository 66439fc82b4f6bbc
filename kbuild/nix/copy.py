"""From the store to the project: variant directories that can be written to, and the card."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from kbuild.build.workspace import Workspace
from kbuild.fileset import replace_atomically, sha256
from kbuild.metadata import METADATA_FILE
from kbuild.nix.kept import keep, read_kept
from kbuild.nix.realise import NAME
from kbuild.package import place, recover, settle_modes

CARD = "CARD.md"
_RECORD = "card.json"
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
    document = json.loads(metadata.read_text("utf-8"))
    builder = document.get("provenance", {}).get("kernel-builder")
    if isinstance(builder, dict):
        builder["sandbox"] = sandbox
        metadata.write_text(
            json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def has_card(project: Path, bundle: str) -> bool:
    """True when the card of that bundle was copied last; the bundle need not be there any more."""
    return _record(project).get("bundle") == bundle


def copy_card(project: Path, bundle: str, folder: Path) -> bool:
    """Put the bundle's card, if it has one, beside the variants.

    Returns:
        False when another card is there, which kbuild did not write.
    """
    card, target = Path(bundle) / CARD, folder / CARD
    record = {"bundle": bundle}
    if card.is_file():
        data, known = card.read_bytes(), _record(project).get("sha256")
        there = sha256(target.read_bytes()) if target.exists() else None
        if there not in {None, sha256(data), known}:
            return False
        if there != sha256(data):
            replace_atomically(target, data)
        record["sha256"] = sha256(data)
    replace_atomically(Workspace(project, NAME).root / _RECORD, json.dumps(record).encode())
    return True


def _record(project: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads((Workspace(project, NAME).root / _RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found
