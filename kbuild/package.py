"""From a staged folder to `build/<variant>/`: metadata, digest, and one atomic move into place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kbuild.digest import digest_variant
from kbuild.errors import FileConflictError
from kbuild.generate.metadata import metadata_of
from kbuild.metadata import METADATA_FILE, Builder
from kbuild.plan import VariantPlan

_LIBRARIES = (".so", ".dylib", ".pyd")


def finish(plan: VariantPlan, stage: Path, builder: Builder | None = None) -> None:
    """Write `metadata.json` with the digest of everything else in `stage`, and settle modes.

    What a file may be used for depends on what it is, and on no umask.

    Args:
        plan: what was built.
        stage: the built files.
        builder: see `metadata_of`.
    """
    metadata = replace(metadata_of(plan, builder), digest=digest_variant(stage))
    (stage / METADATA_FILE).write_text(metadata.to_json_text(), encoding="utf-8")
    settle_modes(stage)


def settle_modes(stage: Path) -> None:
    """Give every file and folder the mode that its kind has, and its owner the right to write."""
    for path in (stage, *stage.rglob("*")):
        if path.is_symlink():
            continue
        path.chmod(0o755 if path.is_dir() or path.suffix in _LIBRARIES else 0o644)


def place(stage: Path, target: Path, amend: Callable[[Path], None] = lambda _: None) -> None:
    """Copy `stage` to `target`; at every moment `target` is the old directory or the new one.

    What it replaces is deleted afterwards.

    Args:
        stage: a variant's files.
        target: the variant directory.
        amend: changes the copy before it is put in place.

    Raises:
        FileConflictError: `target` exists and is no variant directory.
    """
    _refuse_foreign(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.new"
    old = target.parent / f".{target.name}.old"
    for leftover in (fresh, old):
        _remove(leftover)
    shutil.copytree(stage, fresh)
    amend(fresh)
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _remove(folder: Path) -> None:
    """Delete a folder, parts of which may be write-protected copies."""
    if folder.is_dir():
        settle_modes(folder)
        shutil.rmtree(folder)


def recover(target: Path) -> None:
    """Undo what a crash between the two renames of `place` left behind."""
    old = target.parent / f".{target.name}.old"
    if old.is_dir() and not target.exists():
        old.rename(target)


def _refuse_foreign(target: Path) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if target.is_dir() and (is_variant(target) or not any(target.iterdir())):
        return
    raise FileConflictError(
        f"`{target}` exists and is not a built variant",
        hint="move it away, or build into another folder with --output",
    )


def is_variant(folder: Path) -> bool:
    """True when the folder holds a `metadata.json` with a kernel's id."""
    try:
        return "id" in json.loads((folder / METADATA_FILE).read_text())
    except (OSError, ValueError, TypeError):
        return False
