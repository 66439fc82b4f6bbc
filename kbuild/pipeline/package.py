"""Packages a staged folder as `build/<variant>/`: metadata, digest, and one atomic move."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import kbuild
from kbuild.plan.digest import digest_variant, validate_accounted
from kbuild.plan.generate.project import metadata_of
from kbuild.plan.metadata import COMMIT, METADATA_FILE, Builder, GitState
from kbuild.plan.plan import VariantPlan
from kbuild.system import readonly_tree
from kbuild.system.errors import FileConflictError, IncompleteError
from kbuild.system.files import exchange_paths, sync, sync_tree
from kbuild.system.git import Repository
from kbuild.system.processes import Runner
from kbuild.system.untrusted import read_cache_file
from kbuild.system.workspace import Workspace

_LIBRARIES = (".so", ".dylib", ".pyd")
_SUFFIXES = (".new", ".old")


def finalize_stage(plan: VariantPlan, stage: Path, builder: Builder | None = None) -> None:
    """Write `metadata.json` with the digest of everything else in `stage`, and settle modes.

    What a file may be used for depends on what it is, and on no umask.

    Raises:
        CheckError: there is something that the digest does not count.
    """
    validate_accounted(stage)
    metadata = replace(metadata_of(plan, builder), digest=digest_variant(stage))
    (stage / METADATA_FILE).write_text(metadata.to_json_text(), encoding="utf-8")
    normalize_modes(stage)


def normalize_modes(stage: Path) -> None:
    """Give every file and folder the mode that its kind has, and its owner the right to write."""
    for path in (stage, *stage.rglob("*")):
        if path.is_symlink():
            continue
        path.chmod(0o755 if path.is_dir() or path.suffix in _LIBRARIES else 0o644)


def install_variant(
    stage: Path, target: Path, amend: Callable[[Path], None] = lambda _: None
) -> None:
    """Copy `stage` to `target`, which is the old directory or the new one, and whole.

    That holds at every moment, after a kill and after a power cut, where folders can be exchanged:
    on Linux with most file systems (ext4, XFS, Btrfs, tmpfs), and on macOS with APFS. Elsewhere an
    old directory is renamed before the new one is, and `target` is missing for that moment; when it
    is the last one, `restore_old_variant` brings the old directory back. A new directory has all
    its content on the disk before it gets its name, and its name before the old one is deleted.

    A copy that fails is removed. What a kill leaves beside `target` goes with the next
    `install_variant`, or `remove_leftovers`.

    Args:
        stage: a variant's files.
        target: the variant directory.
        amend: changes the copy before it is put in place.

    Raises:
        CheckError: `stage` holds something that its digest does not count.
        FileConflictError: `target` exists and is not a variant directory.
    """
    validate_accounted(stage)
    _validate_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = _temporary_names(target)
    _clear(target)
    try:
        _copy(stage, fresh)
        amend(fresh)
        sync_tree(fresh)
        # Rename; what was there before is `fresh` or `old` afterwards.
        if not target.exists():
            fresh.rename(target)
        # Where folders cannot be exchanged, two renames leave a moment without a target.
        elif not exchange_paths(fresh, target):
            target.rename(old)
            try:
                fresh.rename(target)
            # Ctrl-C between the two renames must not leave the project without the variant.
            except BaseException:
                old.rename(target)
                raise
        sync(target.parent)
    finally:
        with suppress(OSError):
            _clear(target)


def _copy(source: Path, target: Path) -> None:
    """Copy like `shutil.copytree`, which goes on after an error and does not name it."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_dir():
            _copy(path, target / path.name)
        else:
            shutil.copy2(path, target / path.name)
    # After the entries: creating them changes the folder's time.
    shutil.copystat(source, target)


def _temporary_names(target: Path) -> tuple[Path, Path]:
    """The names of the new directory before the move, and of the old one after it."""
    new, old = (target.with_name(f".{target.name}{suffix}") for suffix in _SUFFIXES)
    return new, old


def _clear(target: Path) -> None:
    """Remove what is left beside `target`, but the old directory where there is no other.

    Parts of it may be write-protected copies; it is a link where `target` was one.
    """
    restore_old_variant(target)
    for leftover in _temporary_names(target):
        if leftover.is_symlink():
            leftover.unlink()
        else:
            readonly_tree.remove_tree(leftover)


def restore_old_variant(target: Path) -> None:
    """Undo what a crash between the two renames of `install_variant` left behind."""
    _, old = _temporary_names(target)
    if old.is_dir() and not target.exists():
        old.rename(target)


def remove_leftovers(project: Path, output: Path) -> tuple[Path, ...]:
    """Remove what killed builds of this project left in `output`, beside its variants.

    What is not known to be kbuild's, or belongs to a build that still runs, stays.
    """
    removed = []
    for leftover in _leftovers(output):
        space = Workspace(project, leftover.stem.removeprefix("."))
        if not space.root.is_dir():
            continue
        # It does not wait: the build that holds the lock still needs these files.
        with suppress(IncompleteError, OSError), space.locked(lambda: True):
            _clear(output / space.variant)
            removed.append(leftover)
    return tuple(removed)


def _leftovers(output: Path) -> list[Path]:
    try:
        with os.scandir(output) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(".")]
    except OSError:
        return []
    return [output / name for name in sorted(names) if name.endswith(_SUFFIXES)]


def _validate_target(target: Path) -> None:
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
    return read_cache_file(folder / METADATA_FILE, lambda document: "id" in document) or False


PACKAGE = Path(kbuild.__file__).parent
_PARTS = ("kbuild", "templates", "pyproject.toml")
"""Folders and files that a checkout is run from."""


def running_builder(runner: Runner, package: Path = PACKAGE) -> Builder:
    """This kbuild, for the provenance of what it builds."""
    state = _checkout(package, runner) or _installed_from(package)
    return Builder(kbuild.__version__, git=state)


def _checkout(package: Path, runner: Runner) -> GitState | None:
    """The checkout's state; None when git does not know the package.

    A virtual environment below some repository is none of that repository's.
    """
    repository = Repository(package.parent, runner)
    if repository.ask("ls-files", "--error-unmatch", f"{package.name}/__init__.py") is None:
        return None
    commit = repository.ask("rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    parts = [name for name in _PARTS if (package.parent / name).exists()]
    new = repository.ask("ls-files", "--others", "--exclude-standard", "--", *parts)
    return GitState(commit, dirty=bool(new) or repository.is_changed(*parts))


def _installed_from(package: Path) -> GitState | None:
    for record in sorted(package.parent.glob(f"{package.name}-*.dist-info/direct_url.json")):
        commit = read_cache_file(
            record, lambda record_json: str(record_json["vcs_info"]["commit_id"]).lower()
        )
        if commit is not None and COMMIT.fullmatch(commit):
            return GitState(commit, dirty=False)
    return None
