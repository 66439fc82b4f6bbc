"""Copies variants from the Nix store into the project, and keeps which path each is a copy of."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from kbuild.pipeline.package import install_variant, normalize_modes, restore_old_variant
from kbuild.plan.metadata import METADATA_FILE
from kbuild.system.cache import NIX_COPY, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import identify
from kbuild.system.record import Record, read_record, texts
from kbuild.system.untrusted import read_json
from kbuild.system.workspace import Workspace


def record_copy(space: Workspace, output: str, target: Path, sandbox: str) -> None:
    """Note that `target` was just made a copy of the store path `output`."""
    files = {path: identify(target / path) for path in _files(target)}
    answer = {"output": output, "target": str(target), "sandbox": sandbox}
    Record(answer, files, package_digest()).write(Cache(space.root, NIX_COPY))


def _read(space: Workspace) -> Record | None:
    return read_record(Cache(space.root, NIX_COPY), parse=texts("output", "target", "sandbox"))


def _files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


_SANDBOX_STATES = ("", "unsure", "relaxed", "off")
"""States of the sandbox in metadata, from the best to the worst."""


def is_current_copy(space: Workspace, output: str, target: Path) -> bool:
    """True when `target` is the copy of the store path `output`, untouched since."""
    record = _read(space)
    return (
        record is not None
        and (record.answer["output"], record.answer["target"]) == (output, str(target))
        and record.holds(target, None)
        and set(_files(target)) == set(record.observed)
    )


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
        record = _read(space)
        if record is not None and record.answer["output"] == output:  # it was made then
            sandbox = max(sandbox, record.answer["sandbox"], key=_SANDBOX_STATES.index)
        restore_old_variant(target)
        install_variant(Path(output), target, partial(_make_writable, sandbox=sandbox))
        record_copy(space, output, target, sandbox)


def _make_writable(folder: Path, sandbox: str) -> None:
    """Make the copied files writable and new: the store's are read-only and from 1970."""
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
